//! Projects: their records, keys, grants, and messages from one to another.

mod cross_project;
mod records;
