//! Detects gaps in the frames of each project. Pure.

use std::collections::HashMap;

use crate::model::ProjectId;

/// The last sequence number per project since the connection was established.
#[derive(Debug, Default)]
pub(super) struct FrameSequence(HashMap<ProjectId, u64>);

/// How a frame follows the last one of its project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameOrder {
    /// It is the next one.
    Next,
    /// Frames before it were lost, or the store lost its counter and started again.
    AfterGap,
    /// It was delivered before.
    Duplicate,
}

impl FrameSequence {
    /// Records a frame and says how it follows the last one.
    pub fn observe(&mut self, project: &ProjectId, seq: u64) -> FrameOrder {
        let Some(last) = self.0.get_mut(project) else {
            self.0.insert(project.clone(), seq);
            return FrameOrder::Next;
        };
        let before = std::mem::replace(last, seq);
        match seq {
            _ if seq == before + 1 => FrameOrder::Next,
            _ if seq == before => FrameOrder::Duplicate,
            _ => FrameOrder::AfterGap,
        }
    }

    /// Forgets all projects: the next frame of each is accepted as the next one.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_frame_is_detected_by_the_next_frame_of_its_project() {
        let (acme, other) = (ProjectId::parse("acme").unwrap(), ProjectId::parse("other").unwrap());
        let mut sequence = FrameSequence::default();
        let places = [
            (&acme, 7),
            (&acme, 8),
            (&other, 3),
            (&acme, 10),
            (&acme, 11),
            (&other, 4),
        ]
        .map(|(project, seq)| sequence.observe(project, seq));
        let (next, gap) = (FrameOrder::Next, FrameOrder::AfterGap);
        assert_eq!(places, [next, next, next, gap, next, next]);
    }

    #[test]
    fn a_restarted_counter_is_a_gap() {
        let acme = ProjectId::parse("acme").unwrap();
        let mut sequence = FrameSequence::default();
        sequence.observe(&acme, 900);
        assert_eq!(sequence.observe(&acme, 900), FrameOrder::Duplicate);
        assert_eq!(sequence.observe(&acme, 1), FrameOrder::AfterGap);
        assert_eq!(sequence.observe(&acme, 2), FrameOrder::Next);
        sequence.clear();
        assert_eq!(sequence.observe(&acme, 5), FrameOrder::Next);
    }
}
