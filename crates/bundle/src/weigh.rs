//! Size of the content of a bundle, for the limits of the output.

use crate::Json;
use crate::model::{Agent, Bundle, Tool};

/// Returns the approximate size of all content except code, as text in bytes.
pub(crate) fn text(bundle: &Bundle) -> usize {
    let options = |options: &[(String, Json)]| -> usize {
        let weight = |(key, value): &(String, Json)| key.len() + value.weight();
        options.iter().map(weight).sum()
    };
    let tool = |tool: &Tool| {
        tool.name.len()
            + tool.description.as_ref().map_or(0, String::len)
            + tool.input_schema.weight()
            + tool.output_schema.as_ref().map_or(0, Json::weight)
            + options(&tool.options)
            + tool.ignored.iter().map(String::len).sum::<usize>()
    };
    let agent = |agent: &Agent| {
        agent.key.len()
            + agent.name.len()
            + agent.system.len()
            + agent.model.name.len()
            + options(&agent.options)
            + agent.ignored.iter().map(String::len).sum::<usize>()
    };
    bundle.metadata.as_ref().map_or(0, Json::weight)
        + bundle.agents.iter().map(agent).sum::<usize>()
        + tools(bundle).map(tool).sum::<usize>()
}

/// Returns the size of the code of all tools, in bytes.
pub(crate) fn code(bundle: &Bundle) -> usize {
    tools(bundle)
        .filter_map(|tool| tool.slice.as_ref())
        .map(|slice| slice.code.len())
        .sum()
}

/// Returns the maximum nesting of all JSON.
pub(crate) fn depth(bundle: &Bundle) -> usize {
    let agents = bundle.agents.iter().flat_map(|agent| &agent.options);
    let options = tools(bundle).flat_map(|tool| &tool.options).chain(agents);
    let schemas = tools(bundle)
        .flat_map(|tool| [Some(&tool.input_schema), tool.output_schema.as_ref()])
        .flatten();
    options
        .map(|(_, value)| value)
        .chain(schemas)
        .chain(&bundle.metadata)
        .map(Json::depth)
        .max()
        .unwrap_or(0)
}

fn tools(bundle: &Bundle) -> impl Iterator<Item = &Tool> {
    let of_agents = bundle.agents.iter().flat_map(|agent| &agent.tools);
    of_agents.chain(&bundle.tools)
}
