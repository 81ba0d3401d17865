//! Chooses the meters whose energies may be added up.
//!
//! ```text
//!  machine ⊇ platform ⊇ package ⊇ cores ⊇ core
//!                              ⊇ uncore
//!                       dram
//! ```
//! The sum includes the packages and their memory, because a packet-processing program affects their power, and because
//! their meters are the most exact. If no package can be read, only the platform counts; if the platform cannot be read
//! either, only the machine counts. Cores count only if there is no wider meter.

use super::Part;

/// Indexes of the meters to add up. Their sum counts no energy twice.
pub(super) fn counted(parts: &[&Part]) -> Vec<usize> {
    let places = |wanted: fn(&Part) -> bool| -> Vec<usize> {
        let mut places: Vec<usize> = (0..parts.len()).filter(|place| wanted(parts[*place])).collect();
        // Skips a part that occurred before, so that its energy is not counted twice.
        let mut seen = Vec::new();
        places.retain(|place| {
            !seen.contains(&parts[*place]) && {
                seen.push(parts[*place]);
                true
            }
        });
        places
    };
    let packages = places(|part| matches!(part, Part::Package(_)));
    // One interface may list a package as one meter, another one as a meter per die. Only the form found first counts.
    let dies = packages.first().map(|first| has_die(parts[*first]));
    let packages: Vec<usize> = packages.into_iter().filter(|place| Some(has_die(parts[*place])) == dies).collect();
    let memory = || places(|part| matches!(part, Part::Dram(_)));
    let platform = || places(|part| matches!(part, Part::Platform));
    // If there are several meters of the whole machine, one may include another. Then none of them counts.
    let machine = || match places(|part| matches!(part, Part::Machine(_))) {
        one if one.len() == 1 => one,
        _ => Vec::new(),
    };
    let cores = || places(|part| matches!(part, Part::Cores(_)));
    if !packages.is_empty() {
        return [packages, memory()].concat();
    }
    for set in [platform(), machine(), cores()] {
        if !set.is_empty() {
            return set;
        }
    }
    Vec::new()
}

fn has_die(part: &Part) -> bool {
    matches!(part, Part::Package(place) if place.die.is_some())
}

#[cfg(test)]
mod tests {
    use super::super::Place;
    use super::*;

    fn at(package: u32) -> Place {
        Place { package, die: None }
    }

    fn names(parts: &[Part]) -> Vec<String> {
        let refs: Vec<&Part> = parts.iter().collect();
        counted(&refs).into_iter().map(|place| parts[place].name()).collect()
    }

    #[test]
    fn packages_and_their_memory_are_added_and_nothing_that_includes_them_or_is_in_them() {
        let all = [
            Part::Platform,
            Part::Package(at(0)),
            Part::Cores(at(0)),
            Part::Dram(at(0)),
            Part::Package(at(1)),
            Part::Uncore(at(1)),
            Part::Machine("ACPI000D:00".into()),
            Part::Other("ina226".into()),
            Part::Package(at(0)),
        ];
        assert_eq!(names(&all), ["package-0", "package-1", "package-0 dram"]);
    }

    #[test]
    fn what_is_wider_takes_their_place() {
        let machine = || Part::Machine("ACPI000D:00".into());
        assert_eq!(names(&[machine(), Part::Platform, Part::Cores(at(0))]), ["platform"]);
        assert_eq!(names(&[Part::Dram(at(0)), machine()]), ["ACPI000D:00"]);
        assert_eq!(names(&[machine(), Part::Machine("ACPI000D:01".into())]), Vec::<String>::new());
        assert_eq!(names(&[Part::Cores(at(0)), Part::Core(at(0))]), ["package-0 cores"]);
        assert_eq!(names(&[Part::Other("nvme".into()), Part::Dram(at(0))]), Vec::<String>::new());
    }

    #[test]
    fn dies_are_not_added_to_their_package() {
        let die = |die| Part::Package(Place { package: 0, die: Some(die) });
        assert_eq!(names(&[die(0), die(1), Part::Package(at(0))]), ["package-0-die-0", "package-0-die-1"]);
    }
}
