//! Columns of text, as wide as their longest cell.

/// Formats rows under a heading, with two spaces between columns and no trailing spaces.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let heading: Vec<String> = heading.iter().map(|&word| word.to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&heading).chain(rows).collect();
    let columns = heading.len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            all.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in all {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".to_owned(), "ready".to_owned()],
            vec!["longer".to_owned(), "lost".to_owned()],
        ];
        assert_eq!(
            table(&["NAME", "STATE"], &rows),
            "NAME    STATE\na       ready\nlonger  lost\n"
        );
    }
}
