//! Stand-in addresses: addresses that represent names inside, in a range that belongs to the
//! sandbox's own loopback interface.
//!
//! A name keeps its address as long as the proxy runs, because programs may remember it.

use crate::policy::name::Name;
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Maximum number of names with a stand-in address. A wildcard rule could create any number of
/// them.
const MAX_NAMES: usize = 10_000;

/// Returns true if an address belongs to every sandbox itself: loopback, or the range of the
/// stand-in addresses (198.18.0.0/15, RFC 2544).
pub const fn is_own(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 127 || (first == 198 && matches!(second, 18 | 19))
}

/// Mapping between names and stand-in addresses.
#[derive(Debug)]
pub(crate) struct StandIns {
    first: Ipv4Addr,
    addresses: HashMap<Name, Ipv4Addr>,
    names: Vec<Name>,
}

impl StandIns {
    /// Creates an empty mapping that assigns addresses from `first` upwards.
    pub(crate) fn new(first: Ipv4Addr) -> Self {
        Self {
            first,
            addresses: HashMap::new(),
            names: Vec::new(),
        }
    }

    /// Returns the address of a name, and assigns one if it has none. `None` if there are too many
    /// names.
    pub(crate) fn address_of(&mut self, name: &Name) -> Option<Ipv4Addr> {
        if let Some(address) = self.addresses.get(name) {
            return Some(*address);
        }
        if self.names.len() == MAX_NAMES {
            return None;
        }
        let number = u32::try_from(self.names.len()).ok()?;
        let address = Ipv4Addr::from(u32::from(self.first).checked_add(number)?);
        self.names.push(name.clone());
        self.addresses.insert(name.clone(), address);
        Some(address)
    }

    /// Returns the name that an address stands for.
    pub(crate) fn name_of(&self, address: Ipv4Addr) -> Option<&Name> {
        let number = u32::from(address).checked_sub(u32::from(self.first))?;
        self.names.get(usize::try_from(number).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_address_and_their_number_is_bounded() {
        let start = Ipv4Addr::new(198, 18, 0, 2);
        let mut names = StandIns::new(start);
        let name = |number: usize| Name::parse(&format!("n{number}.example")).unwrap();
        let first = names.address_of(&name(0)).unwrap();
        assert_eq!(first, start);
        for number in 1..MAX_NAMES {
            let address = names.address_of(&name(number)).unwrap();
            assert_eq!(names.name_of(address), Some(&name(number)));
        }
        assert_eq!(names.address_of(&name(MAX_NAMES)), None);
        assert_eq!(names.address_of(&name(0)), Some(first));
        assert_eq!(names.name_of(first), Some(&name(0)));
        for other in [
            Ipv4Addr::new(198, 18, 0, 1),
            Ipv4Addr::LOCALHOST,
            Ipv4Addr::new(198, 19, 255, 255),
            Ipv4Addr::BROADCAST,
        ] {
            assert_eq!(names.name_of(other), None);
        }
    }
}
