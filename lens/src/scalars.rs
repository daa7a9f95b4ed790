//! The operations on scalars: `map`, `convert` and `scale` against a schema.

use serde_json::{Value, json};

use crate::{
    act::{Act, scalar_equal},
    edit::whole,
    number::Decimal,
    operation::{Operation, Scalar},
    path::Path,
    schema::{Place, Types},
    shape::Shape,
};

impl Shape<'_> {
    /// `map`, `convert` and `scale`.
    pub fn scalars(&mut self, act: Act, path: &Path) -> Result<Act, String> {
        let types = self.types(&self.declared(path)?);
        let is_map = matches!(act.operation, Operation::Map { .. });
        let is_scalar = !types.meets(Types(Types::ARRAY.0 | Types::OBJECT.0));
        let from = types
            .without_null()
            .scalar()
            .or((is_map && is_scalar).then_some(Scalar::String));
        let from = from.ok_or("the operation takes one scalar type, and the schema declares something else")?;
        let is_scale = matches!(act.operation, Operation::Scale { .. });
        if is_scale && !matches!(from, Scalar::Integer | Scalar::Number) {
            return Err("the operation takes a number, and the schema declares another type".to_owned());
        }
        let act = Act::new(act.operation, from, act.index);
        let back = act.inverse();
        let values = self.finite(&self.declared(path)?);
        for value in values.iter().flatten() {
            act.scalar(&value.to_string())?;
        }
        let is_changed = |value: &Value| {
            let text = value.to_string();
            let there = act.scalar(&text).ok().flatten().unwrap_or_else(|| text.clone());
            let restored = back.scalar(&there).ok().flatten().unwrap_or(there);
            !scalar_equal(&restored, &text)
        };
        let (loses, invents) = match (&values, &act.operation) {
            (_, Operation::Convert { to, value, .. }) => {
                check_convert(from, *to, value.as_ref())?;
                let unread = |values: &Vec<Value>| values.iter().any(|value| act.makes_up(&value.to_string()));
                let makes_up = from == Scalar::String && values.as_ref().is_none_or(unread);
                if makes_up && value.is_none() {
                    return Err("value is needed: it replaces the strings that cannot be read".to_owned());
                }
                let is_exact = from != Scalar::String && (from, *to) != (Scalar::Number, Scalar::Integer);
                (
                    values
                        .as_ref()
                        .map_or(!is_exact, |values| values.iter().any(is_changed)),
                    makes_up,
                )
            }
            (Some(values), _) => (values.iter().any(is_changed), false),
            (None, Operation::Map { values, .. }) => {
                let mut all = values.iter().flat_map(|(old, new)| [old, new]);
                (all.any(|value| types.admits(value) && is_changed(value)), false)
            }
            (None, Operation::Scale { multiply, divide, .. }) => (
                if from == Scalar::Integer {
                    multiply < divide
                } else {
                    multiply != divide
                },
                false,
            ),
            _ => (false, false),
        };
        if loses {
            self.lose(path);
        }
        self.invents |= invents;
        if let Operation::Scale { multiply, divide, .. } = act.operation
            && multiply > divide
            && values.is_none()
            && !self.is_bounded(path)?
        {
            self.may_fail
                .push((path.clone(), "a number without bounds may become too large".to_owned()));
        }
        self.replace(path, &|shape, place| shape.scalars_after(&act, place))?;
        Ok(act)
    }

    fn is_bounded(&self, path: &Path) -> Result<bool, String> {
        let has = |all: &Vec<&Value>, keywords: [&str; 2]| {
            let bounds = all
                .iter()
                .flat_map(|schema| keywords.map(|keyword| schema.get(keyword)));
            bounds
                .flatten()
                .any(|bound| bound.as_f64().is_some_and(|bound| bound.abs() < 1e290))
        };
        let numbers = self.of_type(&self.declared(path)?, Types::NUMBER).unwrap_or_default();
        Ok(numbers
            .iter()
            .all(|all| has(all, ["minimum", "exclusiveMinimum"]) && has(all, ["maximum", "exclusiveMaximum"])))
    }

    fn scalars_after(&self, act: &Act, place: &Place<'_>) -> Option<Value> {
        let types = self.types(place);
        if types.meets(Types(Types::ARRAY.0 | Types::OBJECT.0)) {
            return None;
        }
        if let Some(values) = self.finite(place) {
            let after = values
                .into_iter()
                .filter_map(|value| match act.scalar(&value.to_string()).ok()? {
                    Some(text) => serde_json::from_str(&text).ok(),
                    None => Some(value),
                });
            return Some(json!({"enum": after.collect::<Vec<Value>>()}));
        }
        let any = match &act.operation {
            Operation::Map { values, .. } => {
                let new: Vec<_> = values.iter().map(|(_, new)| new).collect();
                return Some(json!({"anyOf": [whole(place), {"enum": new}]}));
            }
            Operation::Scale { .. } => self.calculated(act, place, act.from),
            Operation::Convert { to: Scalar::String, .. } => json!({"type": "string", "minLength": 1}),
            Operation::Convert { to, .. } if act.from == Scalar::Number => self.calculated(act, place, *to),
            Operation::Convert {
                to: Scalar::Boolean, ..
            } => json!({"type": "boolean"}),
            Operation::Convert { .. } if act.from == Scalar::Integer => whole(place),
            Operation::Convert { to, .. } => json!({"type": to}),
            _ => return None,
        };
        Some(self.or_null(place, any))
    }

    /// The schema of a number after a calculation that keeps the order.
    fn calculated(&self, act: &Act, place: &Place<'_>, to: Scalar) -> Value {
        let mut after = json!({ "type": to });
        let numbers = self.of_type(place, Types::NUMBER).unwrap_or_default();
        let [all] = numbers.as_slice() else { return after };
        for (keywords, bound, larger) in [
            (["minimum", "exclusiveMinimum"], "minimum", true),
            (["maximum", "exclusiveMaximum"], "maximum", false),
        ] {
            let stated = all
                .iter()
                .flat_map(|schema| keywords.map(|keyword| schema.get(keyword)?.as_number()));
            let stated = stated.flatten().map(ToString::to_string).collect::<Vec<_>>();
            let order = |text: &&String| Decimal::parse(text);
            let strictest = if larger {
                stated.iter().max_by_key(order)
            } else {
                stated.iter().min_by_key(order)
            };
            let scaled = strictest.and_then(|text| act.scalar(text).ok()?);
            if let Some(number) = scaled.and_then(|text| serde_json::from_str(&text).ok()) {
                after[bound] = number;
            }
        }
        after
    }
}

fn check_convert(from: Scalar, to: Scalar, value: Option<&Value>) -> Result<(), String> {
    let is_pair = from != to
        && (from == Scalar::String
            || to == Scalar::String
            || matches!(
                (from, to),
                (Scalar::Number, Scalar::Integer) | (Scalar::Integer, Scalar::Number)
            ));
    if !is_pair {
        return Err("convert leads from or to a string, or between number and integer".to_owned());
    }
    let types = match to {
        Scalar::String => Types::STRING,
        Scalar::Integer => Types::INTEGER,
        Scalar::Number => Types::NUMBER,
        Scalar::Boolean => Types::BOOLEAN,
    };
    match value {
        Some(value) if !types.admits(value) => Err("value is not of the type that convert makes".to_owned()),
        _ => Ok(()),
    }
}
