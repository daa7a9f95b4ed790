//! Which brokers of this user live, wherever clients with another environment have started them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{info::Living, instance::Instance, paths::LocalPaths, vetting};

/// The living brokers of this user, each with its files: in the runtime folders that the environment, a login or a missing
/// environment leads to, and in the one that the last broker has named next to its data. A folder that others may change
/// counts not.
pub fn living_brokers() -> Vec<(LocalPaths, Living)> {
    let mut found: Vec<(LocalPaths, Living)> = Vec::new();
    for instance_at in LocalPaths::runtime_bases().into_iter().flat_map(instances_in) {
        let is_known = found.iter().any(|(known, _)| known.folder == instance_at.folder);
        if is_known || vetting::vet(&instance_at.folder).is_err() {
            continue;
        }
        if let Ok(living @ (Living::Yes(_) | Living::Changing)) = Living::of(&instance_at) {
            found.push((instance_at, living));
        }
    }
    found
}

/// The instances that have a folder below a runtime folder.
fn instances_in(base: PathBuf) -> Vec<LocalPaths> {
    let names_in = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter(|entry| entry.path().is_dir());
        let mut names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    let mut instances = vec![Instance::default()];
    instances.extend(names_in(&base).iter().filter_map(|name| Instance::parse(name).ok()));
    instances.extend(
        names_in(&base.join("dev"))
            .iter()
            .filter_map(|name| Instance::dev(name).ok()),
    );
    let at_base = instances
        .iter()
        .filter_map(|instance| LocalPaths::in_base(instance, &base));
    at_base.filter(|paths| paths.folder.is_dir()).collect()
}
