//! Transforms a payload along a path of lenses.

use crate::{
    Class, TransformError,
    act::Act,
    difference::{Complement, Difference},
    path::{Path, Places, Trail},
    payload::{COPIED, Node, Work},
    trim::Trim,
};

/// The largest result, if the caller takes so much: this many times the payload, and this many bytes more.
const LEN_TIMES: usize = 4;
const LEN_MORE: usize = 4096;

/// One way of a lens, ready to be carried out.
#[derive(Debug)]
pub(crate) struct Way {
    pub acts: Vec<Act>,
    pub trim: Option<Trim>,
    pub class: Class,
    /// The way back gives each payload as it was, if no undeclared member is dropped.
    pub is_restored: bool,
    /// Places of the payload before.
    pub may_lose: Vec<Path>,
}

/// A lens that has been checked against both schemas.
#[derive(Debug)]
pub struct Compiled {
    pub(crate) forward: Way,
    pub(crate) backward: Way,
}

impl Compiled {
    /// Approximate bytes of the compiled lens.
    pub fn bytes_len(&self) -> usize {
        const ACT_BYTES: usize = 512;
        (self.forward.acts.len() + self.backward.acts.len()) * ACT_BYTES
            + [&self.forward, &self.backward]
                .iter()
                .map(|way| way.trim.as_ref().map_or(0, Trim::bytes_len))
                .sum::<usize>()
    }
}

/// A step of a path: the way of its lens, and the way back.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub there: &'a Way,
    pub back: &'a Way,
}

/// The result for one recipient version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transformed {
    pub payload: String,
    /// Places of the payload as sent that the way back would not restore.
    pub loss: Places,
    /// Places of the payload as delivered that are made up.
    pub defaulted: Places,
    /// What restores the loss on the exact reverse of the path. None if nothing is lost or made up, it is too large, or it
    /// is not wanted.
    pub complement: Option<String>,
}

/// What is asked of a transformation.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub payload: &'a str,
    /// The complement of the reverse path, which an earlier transformation has given.
    pub complement: Option<&'a str>,
    pub wants_complement: bool,
    /// Bytes that the result may have, if four times the payload and 4 KiB are more.
    pub len_max: usize,
}

impl<'a> Request<'a> {
    /// A payload by itself.
    pub fn of(payload: &'a str) -> Self {
        Self {
            payload,
            complement: None,
            wants_complement: false,
            len_max: usize::MAX,
        }
    }
}

/// Transforms along the steps. `fits` says whether a text fits the version that is reached after so many steps.
pub(crate) fn transform<'a>(
    steps: &[Step<'a>],
    versions: &[String],
    request: Request<'a>,
    work: &mut u64,
    fits: &mut dyn FnMut(usize, &str) -> bool,
) -> Result<Transformed, TransformError> {
    let work = &mut Work::within(work);
    let len_max = request.payload.len().saturating_mul(LEN_TIMES).saturating_add(LEN_MORE);
    let len_max = Bounds {
        made: len_max.min(request.len_max),
        restored: request.len_max,
    };
    let mut node = Node::of(request.payload);
    node.read_payload(work)?;
    let Some(members) = node.members(work)?.map(|members| members.len()) else {
        return Err(TransformError::NotJson);
    };
    // What has to be compared in the end is not read twice.
    let sent = if steps.iter().all(|step| step.there.is_restored) {
        None
    } else {
        work.spend(members * COPIED)?;
        Some(node.clone())
    };
    let (mut is_restored, mut suspects) = (true, None);
    for (at, step) in steps.iter().enumerate() {
        is_restored &= step.there.is_restored;
        for act in &step.there.acts {
            act.run(&mut node, work)?;
        }
        let Some(trim) = &step.there.trim else { continue };
        let found = trim.apply(&mut node, false, work)?;
        is_restored &= !found.dropped;
        if !found.suspects {
            continue;
        }
        if at + 1 == steps.len() {
            suspects = Some(trim);
        } else if !fits(at + 1, &written(&node, len_max.made, work)?) {
            trim.apply(&mut node, true, work)?;
            is_restored = false;
        }
    }
    let complement = request.complement.and_then(|text| Complement::read(text, versions));
    let mut fits = |text: &str| fits(steps.len(), text);
    let mut result = settle(&node, complement.as_ref(), &len_max, work, &mut fits)?;
    if let (None, Some(trim)) = (&result, suspects) {
        is_restored = false;
        trim.apply(&mut node, true, work)?;
        result = settle(&node, complement.as_ref(), &len_max, work, &mut fits)?;
    }
    let (payload, restored) = result.ok_or(TransformError::DoesNotFit)?;
    let mut node = restored.unwrap_or(node);
    is_restored &= complement.is_none() && !work.has_removed;
    let mut defaulted = Places::default();
    node.made_places(&Trail::Start, &mut defaulted);
    if is_restored {
        return Ok(Transformed {
            payload,
            loss: Places::default(),
            defaulted,
            complement: None,
        });
    }
    for act in steps.iter().rev().flat_map(|step| &step.back.acts) {
        match act.run(&mut node, work) {
            // The value stays, and is compared as it is.
            Ok(()) | Err(TransformError::CannotCarryOut { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let mut sent = sent.unwrap_or_else(|| Node::of(request.payload));
    sent.read_payload(work)?;
    let difference = Difference::of(&mut sent, &mut node, request.wants_complement, work)?;
    let complement = difference.complement(versions);
    Ok(Transformed {
        payload,
        loss: difference.loss,
        defaulted,
        complement,
    })
}

/// Bytes that a result may have.
struct Bounds {
    made: usize,
    /// With what a complement restores, which bounds it too.
    restored: usize,
}

/// The text of a result that fits, and its value if it is another one: with what the complement restores, or else without.
/// None if neither fits.
fn settle<'a>(
    node: &Node<'a>,
    complement: Option<&Complement<'a>>,
    len_max: &Bounds,
    work: &mut Work<'_>,
    fits: &mut dyn FnMut(&str) -> bool,
) -> Result<Option<(String, Option<Node<'a>>)>, TransformError> {
    if let Some(complement) = complement {
        let mut restored = node.clone();
        complement.restore(&mut restored, work)?;
        match written(&restored, len_max.restored, work) {
            Ok(text) if fits(&text) => return Ok(Some((text, Some(restored)))),
            Ok(_) | Err(TransformError::TooLarge) => {}
            Err(error) => return Err(error),
        }
    }
    let text = written(node, len_max.made, work)?;
    Ok(if fits(&text) { Some((text, None)) } else { None })
}

fn written(node: &Node<'_>, len_max: usize, work: &mut Work<'_>) -> Result<String, TransformError> {
    let mut text = String::new();
    node.write(&mut text, len_max, work)?;
    Ok(text)
}
