//! Whether a frame is the next of its project. Pure.

use std::collections::HashMap;

use crate::model::ProjectId;

/// What was heard last of each project, since the connection stands.
#[derive(Debug, Default)]
pub(super) struct FrameSequence(HashMap<ProjectId, u64>);

/// Where a frame stands among those of its project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameOrder {
    /// Nothing is missing.
    Next,
    /// Frames before it were lost, or the store has lost what it had counted.
    AfterGap,
    /// It was heard before.
    Duplicate,
}

impl FrameSequence {
    pub fn observe(&mut self, project: &ProjectId, serial: u64) -> FrameOrder {
        let Some(last) = self.0.get_mut(project) else {
            self.0.insert(project.clone(), serial);
            return FrameOrder::Next;
        };
        let before = std::mem::replace(last, serial);
        match serial {
            _ if serial == before + 1 => FrameOrder::Next,
            _ if serial == before => FrameOrder::Duplicate,
            _ => FrameOrder::AfterGap,
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
        let mut serials = FrameSequence::default();
        let places = [
            (&acme, 7),
            (&acme, 8),
            (&other, 3),
            (&acme, 10),
            (&acme, 11),
            (&other, 4),
        ]
        .map(|(project, serial)| serials.observe(project, serial));
        let (next, gap) = (FrameOrder::Next, FrameOrder::AfterGap);
        assert_eq!(places, [next, next, next, gap, next, next]);
    }

    #[test]
    fn a_count_that_begins_anew_is_a_gap() {
        let acme = ProjectId::parse("acme").unwrap();
        let mut serials = FrameSequence::default();
        serials.observe(&acme, 900);
        assert_eq!(serials.observe(&acme, 900), FrameOrder::Duplicate);
        assert_eq!(serials.observe(&acme, 1), FrameOrder::AfterGap);
        assert_eq!(serials.observe(&acme, 2), FrameOrder::Next);
        serials.clear();
        assert_eq!(serials.observe(&acme, 5), FrameOrder::Next);
    }
}
