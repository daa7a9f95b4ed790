//! Whether a frame is the next of its project. Pure.

use std::collections::HashMap;

use crate::model::ProjectId;

/// What was heard last of each project, since the connection stands.
#[derive(Debug, Default)]
pub(super) struct Serials(HashMap<ProjectId, u64>);

/// Where a frame stands among those of its project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing is missing.
    Next,
    /// Frames before it were lost, or the store has lost what it had counted.
    AfterGap,
    /// It was heard before.
    Repeated,
}

impl Serials {
    pub fn heard(&mut self, project: &ProjectId, serial: u64) -> Place {
        let Some(last) = self.0.get_mut(project) else {
            self.0.insert(project.clone(), serial);
            return Place::Next;
        };
        let before = std::mem::replace(last, serial);
        match serial {
            _ if serial == before + 1 => Place::Next,
            _ if serial == before => Place::Repeated,
            _ => Place::AfterGap,
        }
    }

    /// Nothing is known of what comes next.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_frame_is_noticed_with_the_next_of_its_project() {
        let (acme, other) = (ProjectId::parse("acme").unwrap(), ProjectId::parse("other").unwrap());
        let mut serials = Serials::default();
        let places = [
            (&acme, 7),
            (&acme, 8),
            (&other, 3),
            (&acme, 10),
            (&acme, 11),
            (&other, 4),
        ]
        .map(|(project, serial)| serials.heard(project, serial));
        let (next, gap) = (Place::Next, Place::AfterGap);
        assert_eq!(places, [next, next, next, gap, next, next]);
    }

    #[test]
    fn a_count_that_begins_anew_is_a_gap() {
        let acme = ProjectId::parse("acme").unwrap();
        let mut serials = Serials::default();
        serials.heard(&acme, 900);
        assert_eq!(serials.heard(&acme, 900), Place::Repeated);
        assert_eq!(serials.heard(&acme, 1), Place::AfterGap);
        assert_eq!(serials.heard(&acme, 2), Place::Next);
        serials.clear();
        assert_eq!(serials.heard(&acme, 5), Place::Next);
    }
}
