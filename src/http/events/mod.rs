//! Follows the event log of projects: one reader for each project and replica while it has followers, which shares what
//! it has encoded with all of them. Followers of the desk read its feed in place of the log.

mod desk;
mod follower;
mod frame;
mod tail;
mod topics;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use actors::{
    locked::Locked,
    model::{EventKinds, ProjectId},
    project::ProjectHandle,
};

pub use desk::{DeskFollower, DeskSource, DeskTopics, DeskView, parse_yap_id};
pub use follower::{Follower, View};
pub use topics::Topics;

use tail::Tail;

/// Followers of this process: each may have a full socket buffer, and costs a write for each read of the log.
const FOLLOWERS_MAX: usize = 1000;
/// Followers of one project.
const PROJECT_FOLLOWERS_MAX: usize = 250;

/// The followers of the process.
#[derive(Default)]
pub struct Followers(Locked<Registry>);

#[derive(Default)]
struct Registry {
    len: usize,
    projects: HashMap<ProjectId, ProjectFollowers>,
}

#[derive(Default)]
struct ProjectFollowers {
    len: usize,
    tail: Weak<Tail>,
}

/// A place among the followers of a project. It is released on drop.
pub struct Place {
    followers: Arc<Followers>,
    project: ProjectId,
}

/// Why a project cannot be followed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooManyFollowers {
    OfTheProject,
    OfTheReplica,
}

impl TooManyFollowers {
    /// What the caller can do.
    pub const fn text(self) -> &'static str {
        match self {
            Self::OfTheProject => "250 callers follow the events of this project at this replica: close a stream first",
            Self::OfTheReplica => "1,000 callers follow events at this replica: try again later",
        }
    }
}

impl Followers {
    /// Joins the followers of a project, who want events of these kinds. The first one starts the reader.
    ///
    /// # Errors
    /// The project or the replica has its maximum of followers.
    fn join(
        self: &Arc<Self>,
        project: &ProjectHandle,
        kinds: EventKinds,
    ) -> Result<(Arc<Tail>, Place), TooManyFollowers> {
        let place = self.take_place(project)?;
        let mut registry = self.0.lock();
        let of_project = registry.projects.entry(project.id().clone()).or_default();
        // A project that was opened again has another handle.
        let tail = of_project.tail.upgrade().filter(|tail| !tail.has_ended());
        let tail = tail.unwrap_or_else(|| {
            let tail = Tail::start(project.clone());
            of_project.tail = Arc::downgrade(&tail);
            tail
        });
        drop(registry);
        tail.want(kinds);
        Ok((tail, place))
    }

    /// Takes a place among the followers of a project.
    ///
    /// # Errors
    /// The project or the replica has its maximum of followers.
    pub fn take_place(self: &Arc<Self>, project: &ProjectHandle) -> Result<Place, TooManyFollowers> {
        let mut registry = self.0.lock();
        if registry.len >= FOLLOWERS_MAX {
            return Err(TooManyFollowers::OfTheReplica);
        }
        let of_project = registry.projects.entry(project.id().clone()).or_default();
        if of_project.len >= PROJECT_FOLLOWERS_MAX {
            return Err(TooManyFollowers::OfTheProject);
        }
        of_project.len += 1;
        registry.len += 1;
        Ok(Place {
            followers: Arc::clone(self),
            project: project.id().clone(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut registry = self.followers.0.lock();
        registry.len -= 1;
        if let Some(of_project) = registry.projects.get_mut(&self.project) {
            of_project.len -= 1;
            if of_project.len == 0 {
                registry.projects.remove(&self.project);
            }
        }
    }
}
