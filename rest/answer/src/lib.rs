//! The attribute `answer`: what the types of REST answers have in common, written once.

use proc_macro::TokenStream;
use quote::{ToTokens, quote};
use syn::{Field, GenericArgument, ItemStruct, PathArguments, Type, parse_macro_input, parse_quote};

/// Makes a struct the type of an answer: the broker writes it, the command line reads it, and `/openapi.json` describes it.
///
/// A member is always written, an `Option` as null. A member with `#[absent]` is left out while it has its default value. A
/// reader of `#[answer(lenient)]` takes the default value of each member that is missing, and shows the rest; without one with
/// `#[needed]` it reads nothing. A text of the type `Id` or `Time` gets its format in the schema.
#[proc_macro_attribute]
pub fn answer(how: TokenStream, item: TokenStream) -> TokenStream {
    let is_lenient = match how.to_string().as_str() {
        "" => false,
        "lenient" => true,
        _ => return quote!(compile_error!("#[answer] takes `lenient` or nothing");).into(),
    };
    let mut item = parse_macro_input!(item as ItemStruct);
    for field in &mut item.fields {
        describe(field, is_lenient);
    }
    let derives = quote! {
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::utoipa::ToSchema)]
    };
    quote!(#derives #item).into()
}

/// Adds the attributes that say when a member is written, and what is read without it. Those that the field has win.
fn describe(field: &mut Field, is_lenient: bool) {
    if has(field, "serde", "flatten") {
        return;
    }
    let mut described = field.ty.clone();
    if let Some(format) = take_format(&mut described) {
        let schema = parse_quote!(#[schema(value_type = #described, format = #format)]);
        field.attrs.push(schema);
    }
    let (is_absent, is_needed) = (take(field, "absent"), take(field, "needed"));
    let is_option =
        matches!(&field.ty, Type::Path(kind) if kind.path.segments.last().is_some_and(|last| last.ident == "Option"));
    if (is_lenient || is_absent) && !is_needed && !has(field, "serde", "default") {
        field.attrs.push(parse_quote!(#[serde(default)]));
    }
    if is_absent {
        let skip = parse_quote!(#[serde(skip_serializing_if = "crate::is_default")]);
        field.attrs.push(skip);
        if is_option && !has(field, "schema", "nullable") {
            field.attrs.push(parse_quote!(#[schema(nullable = false)]));
        }
    } else if !has(field, "schema", "required") {
        field.attrs.push(parse_quote!(#[schema(required)]));
    }
}

/// Replaces the types `Id` and `Time`, which are texts, by `String`, which the schema knows. Returns the format of the text.
fn take_format(kind: &mut Type) -> Option<&'static str> {
    let Type::Path(path) = kind else { return None };
    let last = path.path.segments.last_mut()?;
    if let PathArguments::AngleBracketed(inner) = &mut last.arguments {
        return match inner.args.first_mut() {
            Some(GenericArgument::Type(kind)) if last.ident == "Option" => take_format(kind),
            _ => None,
        };
    }
    let format = match last.ident.to_string().as_str() {
        "Id" => "uuid",
        "Time" => "date-time",
        _ => return None,
    };
    *kind = parse_quote!(String);
    Some(format)
}

/// Removes an attribute that only this macro knows. Returns whether it was there.
fn take(field: &mut Field, name: &str) -> bool {
    let len = field.attrs.len();
    field.attrs.retain(|attribute| !attribute.path().is_ident(name));
    field.attrs.len() < len
}

/// Whether an attribute of this name has this word.
fn has(field: &Field, name: &str, word: &str) -> bool {
    let mut attributes = field.attrs.iter().filter(|attribute| attribute.path().is_ident(name));
    attributes.any(|attribute| attribute.to_token_stream().to_string().contains(word))
}
