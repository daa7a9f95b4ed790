//! Registered lenses as records. The registry compiles them. A lens is replaced and removed by compare and set.

use std::sync::Arc;

use semver::{BuildMetadata, Version};

use super::{
    error::{Op, StoreError},
    records::{Before, RecordPut, Table},
    store::Store,
};
use crate::model::{LensRecord, ProtocolName};

/// A lens as the store has it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredLens {
    pub record: Arc<LensRecord>,
    /// What a change of the lens is compared with.
    text: Arc<str>,
}

impl dyn Store {
    /// The lenses of a protocol, or all of the project, by name and versions. One that another build has written in another
    /// way is left out: it holds up no other.
    pub fn lenses(&self, name: Option<&ProtocolName>) -> Op<Vec<Arc<LensRecord>>> {
        let prefix = name.map_or_else(Vec::new, |name| format!("{name} ").into_bytes());
        let records = self.list(Table::Lenses, prefix);
        Box::pin(async move {
            let records = records.await?.into_iter();
            let read = |text| read(text).inspect_err(|error| tracing::error!(%error, "a lens is ignored"));
            let mut lenses: Vec<_> = records.filter_map(|(_, text)| Some(read(text).ok()?.record)).collect();
            lenses.sort_by(|a, b| (&a.name, &a.to, &a.from).cmp(&(&b.name, &b.to, &b.from)));
            Ok(lenses)
        })
    }

    /// The lens between two versions; None if the store does not have it.
    pub fn lens(&self, name: &ProtocolName, from: &Version, to: &Version) -> Op<Option<StoredLens>> {
        let text = self.get(Table::Lenses, key_of(name, from, to));
        Box::pin(async move { text.await?.map(read).transpose() })
    }

    /// Stores a lens if the pair still has the lens `before`, or still has none.
    pub fn put_lens(&self, record: &LensRecord, before: Option<&StoredLens>) -> Op<LensPut> {
        // Plain values are always JSON.
        let text = serde_json::to_string(record).unwrap_or_default();
        self.change_lens(record, before, Some(text.into()))
    }

    /// Removes a lens if it is still the same.
    pub fn remove_lens(&self, stored: &StoredLens) -> Op<LensPut> {
        self.change_lens(&stored.record, Some(stored), None)
    }

    fn change_lens(&self, of: &LensRecord, before: Option<&StoredLens>, text: Option<Arc<str>>) -> Op<LensPut> {
        let before = before.map_or(Before::Absent { len_max: usize::MAX }, |stored| {
            Before::Text(Arc::clone(&stored.text))
        });
        let put = self.put_if(Table::Lenses, key_of(&of.name, &of.from, &of.to), before, text);
        Box::pin(async move {
            Ok(match put.await? {
                RecordPut::Stored => LensPut::Stored,
                RecordPut::Differs(stored) => LensPut::Differs(stored.map(read).transpose()?),
                RecordPut::Full => LensPut::TooLarge,
            })
        })
    }
}

/// Versions that differ in build metadata are the same.
fn key_of(name: &ProtocolName, from: &Version, to: &Version) -> Vec<u8> {
    let [from, to] = [from, to].map(|version| Version {
        build: BuildMetadata::EMPTY,
        ..version.clone()
    });
    format!("{name} {from} {to}").into_bytes()
}

fn read(text: Arc<str>) -> Result<StoredLens, StoreError> {
    match serde_json::from_str(&text) {
        Ok(record) => Ok(StoredLens { record, text }),
        Err(error) => Err(StoreError::Unreachable(format!("a lens cannot be read: {error}"))),
    }
}

/// The result of a change of a lens. Every variant but `Stored` means that nothing changed.
#[derive(Clone, Debug, PartialEq)]
pub enum LensPut {
    /// It is stored, or removed.
    Stored,
    /// The pair has this lens meanwhile, or none.
    Differs(Option<StoredLens>),
    /// The record has more bytes than one may have.
    TooLarge,
}
