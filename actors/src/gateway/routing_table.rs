//! What the backends of a project offer together: the offered names, where each leads, and the lists as clients see them.
//! It is made when something changes, so that a reader looks up one name or copies one text. Pure.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use super::{
    addresses::{Addresses, offered_uri, split_uri},
    listing::{Listing, Prefixed, Target},
    lists::{BackendLists, Item, ListKind},
    names::{Names, Naming, Prefix},
};
use crate::{
    json,
    model::{BackendConfig, BackendName, ToolOverride},
};

/// The member of `_meta` that says which backend has a tool.
pub const BACKEND_META: &str = "dev.mcp-broker/backend";

/// One backend as the routing table sees it.
#[derive(Clone, Debug)]
pub struct Offer {
    pub config: Arc<BackendConfig>,
    pub lists: Arc<BackendLists>,
}

/// An item, and what is listed in place of its own texts.
#[derive(Clone, Copy)]
struct Listed<'a> {
    addresses: &'a Addresses<'a>,
    item: &'a Item,
    kind: ListKind,
    texts: Option<&'a ToolOverride>,
}

/// What all backends offer, together and each alone.
#[derive(Debug, Default)]
pub struct RoutingTable {
    backends: Vec<BackendName>,
    /// The lists of all backends together, in the order of [`ListKind::ALL`].
    together: [Listing; ListKind::ALL.len()],
    /// The lists of each backend alone, under its own names.
    alone: Vec<[Listing; ListKind::ALL.len()]>,
    /// The only backend that is enabled, where the names of a single one have no prefix.
    single: Option<usize>,
}

impl RoutingTable {
    /// The routing table of these backends, in their order.
    pub fn new(offers: &[Offer], naming: &Naming) -> Self {
        let mut routes = Self {
            backends: offers.iter().map(|offer| offer.config.name.clone()).collect(),
            single: single(offers, naming),
            ..Self::default()
        };
        let addresses: Vec<Addresses<'_>> = offers.iter().map(|offer| Addresses::new(&offer.lists)).collect();
        let mut names = [Names::new(naming), Names::new(naming)];
        let mut prefixed: [Vec<(Prefixed<'_>, Listed<'_>)>; 2] = Default::default();
        for (at, Offer { config, lists }) in offers.iter().enumerate() {
            let mut alone = <[Listing; ListKind::ALL.len()]>::default();
            for kind in ListKind::ALL {
                let together = &mut routes.together[kind.index()];
                let is_tool = kind == ListKind::Tools;
                let is_offered = |item: &&Item| !is_tool || config.tools.offers(&item.key);
                for item in lists.of(kind).iter().filter(is_offered) {
                    let target = Target {
                        backend: at,
                        original: item.key.as_str().into(),
                    };
                    let texts = config.tools.overrides.get(&item.key).filter(|_| is_tool);
                    let listed = Listed {
                        addresses: &addresses[at],
                        item,
                        kind,
                        texts,
                    };
                    let renamed = config.tools.rename.get(&item.key).filter(|_| is_tool);
                    let own = renamed.unwrap_or(&item.key);
                    let text = match (renamed, texts) {
                        (None, None) => item.text.to_string(),
                        _ => listed.text(own, None),
                    };
                    alone[kind.index()].add(own, &text, target.clone());
                    let offered = match kind {
                        ListKind::Tools => names[0].offer(&config.name, own),
                        ListKind::Prompts => names[1].offer(&config.name, own),
                        ListKind::Resources | ListKind::Templates => offered_uri(&config.name, own),
                    };
                    let text = listed.text(&offered, Some(&config.name));
                    for also in other_names(kind, &config.name, own, naming) {
                        together.accept(also.into(), &target);
                    }
                    together.add(&offered, &text, target.clone());
                    if let Some(prefixed) = prefixed.get_mut(kind.index()) {
                        prefixed.push((Prefixed { own, offered, target }, listed));
                    }
                }
            }
            routes.alone.push(alone);
        }
        if naming.prefix == Prefix::Never {
            for (kind, items) in [ListKind::Tools, ListKind::Prompts].into_iter().zip(prefixed) {
                routes.drop_prefixes(kind, items, naming);
            }
        }
        routes
    }

    fn drop_prefixes(&mut self, kind: ListKind, items: Vec<(Prefixed<'_>, Listed<'_>)>, naming: &Naming) {
        let reserved: &BTreeSet<&str> = match kind {
            ListKind::Prompts => &naming.own_prompts,
            _ => &naming.own_tools,
        };
        let (names, items): (Vec<_>, Vec<_>) = items.into_iter().unzip();
        let text = |at: usize, name: &str| {
            let backend = names
                .get(at)
                .and_then(|name: &Prefixed<'_>| self.backends.get(name.target.backend));
            items[at].text(name, backend)
        };
        let listing = std::mem::take(&mut self.together[kind.index()]);
        self.together[kind.index()] = listing.without_prefixes(&names, naming, reserved, text);
    }

    /// The position of the only backend that is enabled, where that one is shown under its own names if nothing else is
    /// shown.
    pub fn single(&self) -> Option<usize> {
        self.single
    }

    /// A list of all backends together, or of the backend at a position.
    pub fn listing(&self, backend: Option<usize>, kind: ListKind) -> &Listing {
        static NONE: LazyLock<Listing> = LazyLock::new(Listing::default);
        match backend {
            None => &self.together[kind.index()],
            Some(at) => self.alone.get(at).map_or(&*NONE, |lists| &lists[kind.index()]),
        }
    }

    /// Where a URI leads: one that is listed, an original one that exactly one backend lists, or one that has the name of a
    /// backend in it, which may have a template for it.
    pub fn resource(&self, uri: &str) -> Option<Target> {
        let listed = self.listing(None, ListKind::Resources).find(uri).cloned();
        listed.or_else(|| self.named_resource(uri))
    }

    /// Where a URI leads that is offered, or has the name of a backend in it.
    pub fn offered_resource(&self, uri: &str) -> Option<Target> {
        let offered = self.listing(None, ListKind::Resources).find_offered(uri).cloned();
        offered.or_else(|| self.named_resource(uri))
    }

    fn named_resource(&self, uri: &str) -> Option<Target> {
        let (names, original) = split_uri(uri)?;
        let position = |name: &str| self.backends.iter().position(|known| known.as_str() == name);
        let backend = names.into_iter().flatten().find_map(position)?;
        Some(Target {
            backend,
            original: original.into(),
        })
    }
}

/// The only backend that is enabled, where names of a single one have no prefix.
fn single(offers: &[Offer], naming: &Naming) -> Option<usize> {
    let mut enabled = (0..).zip(offers).filter(|(_, offer)| !offer.config.is_disabled);
    let (at, _) = enabled.next().filter(|_| naming.prefix == Prefix::Auto)?;
    enabled.next().is_none().then_some(at)
}

/// Further names under which an item is accepted.
fn other_names(kind: ListKind, backend: &BackendName, own: &str, naming: &Naming) -> Vec<String> {
    match kind {
        ListKind::Tools | ListKind::Prompts => naming
            .separators()
            .map(|separator| format!("{backend}{separator}{own}"))
            .collect(),
        ListKind::Resources => vec![own.to_owned()],
        ListKind::Templates => Vec::new(),
    }
}

impl Listed<'_> {
    /// The text of the item with its offered name, the texts that are listed in place of its own, and the backend in `_meta`
    /// if one is given. All other members stay as they are.
    fn text(&self, offered: &str, backend: Option<&BackendName>) -> String {
        let item = self.item;
        let Ok(members) = json::members(&item.text) else {
            return item.text.to_string();
        };
        let texts = self.texts;
        let title = texts.and_then(|texts| texts.title.as_deref());
        let description = texts.and_then(|texts| texts.description.as_deref());
        let changed = [
            (self.kind.key(), Some(offered)),
            ("title", title),
            ("description", description),
        ];
        let changed = changed.map(|(member, text)| (member, text.map(json::string)));
        let change_of = |member: &str| {
            let found = changed.iter().find(|(changed, _)| *changed == member);
            found.and_then(|(_, text)| text.as_deref())
        };
        let missing = changed
            .iter()
            .filter(|(member, _)| !members.iter().any(|(known, _)| known == member))
            .filter_map(|(member, text)| Some((*member, text.as_deref()?)));
        let meta = backend.map(|backend| self.meta_with(&members, backend));
        let added = changed.iter().filter_map(|(_, text)| text.as_ref()).chain(&meta);
        let mut out = Vec::with_capacity(item.text.len() + added.map(String::len).sum::<usize>());
        let kept = members.iter().filter(|(member, _)| member != "_meta" || meta.is_none());
        json::write_object(
            &mut out,
            kept.map(|(member, value)| (&**member, change_of(member).unwrap_or(value)))
                .chain(missing)
                .chain(meta.iter().map(|meta| ("_meta", meta.as_str()))),
        );
        written(out)
    }

    /// The `_meta` of an item, with the backend that has it, and with addresses under which its resources are offered.
    fn meta_with(&self, members: &[(Cow<'_, str>, &str)], backend: &BackendName) -> String {
        let label = match self.kind {
            ListKind::Tools => "tool",
            ListKind::Prompts => "prompt",
            ListKind::Resources | ListKind::Templates => self.kind.key(),
        };
        let mut origin = Vec::new();
        let (name, original) = (json::string(backend.as_str()), json::string(&self.item.key));
        json::write_object(&mut origin, [("name", name.as_str()), (label, original.as_str())]);
        let origin = written(origin);
        let known = members.iter().find(|(member, _)| member == "_meta");
        let known = known.and_then(|(_, meta)| json::members(meta).ok()).unwrap_or_default();
        let others = known.iter().filter(|(member, _)| member != BACKEND_META);
        let others: Vec<_> = others
            .map(|(member, value)| (&**member, self.addresses.offered_in(backend, value)))
            .collect();
        let mut meta = Vec::new();
        json::write_object(
            &mut meta,
            others
                .iter()
                .map(|(member, value)| (*member, &**value))
                .chain([(BACKEND_META, origin.as_str())]),
        );
        written(meta)
    }
}

/// Text that was written as UTF-8.
fn written(text: Vec<u8>) -> String {
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{super::listing::ListPage, *};
    use crate::model::BackendAddress;

    fn offer(name: &str, tools: &[&str]) -> Offer {
        let address = BackendAddress::Url {
            url: "http://localhost".to_owned(),
            headers: BTreeMap::new(),
            transport: None,
        };
        let item = |tool: &&str| Item {
            key: (*tool).to_owned(),
            text: json!({"name": tool, "inputSchema": {"type": "object"}, "_meta": {"a": 1}})
                .to_string()
                .into(),
        };
        Offer {
            config: Arc::new(BackendConfig::new(BackendName::parse(name).unwrap(), address)),
            lists: Arc::new(BackendLists {
                tools: tools.iter().map(item).collect(),
                ..BackendLists::default()
            }),
        }
    }

    fn with_resources(mut offer: Offer, uris: &[&str]) -> Offer {
        let mut lists = (*offer.lists).clone();
        lists.resources = uris
            .iter()
            .map(|uri| Item {
                key: (*uri).to_owned(),
                text: json!({"uri": uri, "name": "x"}).to_string().into(),
            })
            .collect();
        offer.lists = Arc::new(lists);
        offer
    }

    fn routes(offers: &[Offer]) -> RoutingTable {
        RoutingTable::new(offers, &Naming::default())
    }

    fn tool<'a>(routes: &'a RoutingTable, name: &str) -> Option<&'a Target> {
        routes.listing(None, ListKind::Tools).find(name)
    }

    fn target(backend: usize, original: &str) -> Target {
        Target {
            backend,
            original: original.into(),
        }
    }

    #[test]
    fn a_tool_is_found_by_every_way_to_write_its_name() {
        let routes = routes(&[offer("git", &["log"]), offer("github", &["search"])]);
        for name in ["github__search", "github::search", "github.search"] {
            assert_eq!(tool(&routes, name), Some(&target(1, "search")), "{name}");
        }
        assert_eq!(tool(&routes, "search"), None);
        assert_eq!(tool(&routes, "github__log"), None);
        let alone = routes.listing(Some(1), ListKind::Tools);
        assert_eq!(alone.find("search"), Some(&target(1, "search")));
        assert_eq!(alone.find("github__search"), None);
        assert_eq!(
            alone.text(),
            &*offer("github", &["search"]).lists.tools[0].text,
            "as the backend sent it"
        );
    }

    #[test]
    fn the_list_keeps_members_and_says_which_backend_has_the_tool() {
        let routes = routes(&[offer("git", &["log"])]);
        let listed: Value =
            serde_json::from_str(&format!("[{}]", routes.listing(None, ListKind::Tools).text())).unwrap();
        assert_eq!(
            listed,
            json!([{
                "name": "git__log",
                "inputSchema": {"type": "object"},
                "_meta": {"a": 1, (BACKEND_META): {"name": "git", "tool": "log"}},
            }])
        );
    }

    #[test]
    fn an_offered_name_wins_over_another_way_to_write_one() {
        // The tool `b__x` of `a` and the tool `x` of a backend cannot both be written `a__b__x`; dots are replaced.
        let routes = routes(&[offer("a", &["x.y", "x_y"])]);
        assert_eq!(tool(&routes, "a__x_y"), Some(&target(0, "x_y")));
        assert_eq!(tool(&routes, "a__x.y"), Some(&target(0, "x.y")));
        assert_eq!(routes.listing(None, ListKind::Tools).len(), 2);
    }

    #[test]
    fn denied_tools_are_unknown_and_renamed_ones_have_their_new_name() {
        let mut github = offer("github", &["search_repositories", "delete_repo"]);
        let mut config = (*github.config).clone();
        config.tools.deny = vec!["delete_*".to_owned()];
        config
            .tools
            .rename
            .insert("search_repositories".to_owned(), "repos".to_owned());
        github.config = Arc::new(config);
        let routes = routes(&[github]);
        assert_eq!(tool(&routes, "github__repos"), Some(&target(0, "search_repositories")));
        for unknown in ["github__delete_repo", "github__search_repositories"] {
            assert_eq!(tool(&routes, unknown), None, "{unknown}");
        }
    }

    #[test]
    fn other_texts_take_the_place_of_those_of_a_tool_and_all_else_stays() {
        let plain = r#"{"description":"D","name":"search","x":1.0e2,"annotations":{ "title":"T" },"_meta":{"a":1}}"#;
        let titled = r#"{"title":"T","name":"get","inputSchema":{"type":"object"}}"#;
        let mut github = offer("github", &["search", "get", "put"]);
        let mut lists = (*github.lists).clone();
        (lists.tools[0].text, lists.tools[1].text) = (plain.into(), titled.into());
        let put = lists.tools[2].text.clone();
        lists.prompts = vec![lists.tools[1].clone()];
        github.lists = Arc::new(lists);
        let mut config = (*github.config).clone();
        config.tools.rename.insert("search".to_owned(), "find".to_owned());
        let text = |text: &str| Some(text.to_owned());
        let overrides = [
            ("search", text("Find \"it\""), text("")),
            ("get", text("Get"), None),
            ("missing", text("Missing"), None),
        ];
        config.tools.overrides = overrides
            .map(|(tool, title, description)| (tool.to_owned(), ToolOverride { title, description }))
            .into();
        github.config = Arc::new(config);
        let alone = [
            r#"{"description":"","name":"find","x":1.0e2,"annotations":{ "title":"T" },"_meta":{"a":1},"title":"Find \"it\""}"#,
            r#"{"title":"Get","name":"get","inputSchema":{"type":"object"}}"#,
            &*put,
        ];
        let offers = [github];
        for naming in [Naming::default(), never(&[])] {
            let routes = RoutingTable::new(&offers, &naming);
            assert_eq!(routes.listing(Some(0), ListKind::Tools).text(), alone.join(","));
            assert_eq!(
                routes.listing(Some(0), ListKind::Prompts).text(),
                titled,
                "prompts stay"
            );
            let prefix = if naming.prefix == Prefix::Never { "" } else { "github__" };
            let first = format!(
                r#"{{"description":"","name":"{prefix}find","x":1.0e2,"annotations":{{ "title":"T" }},"title":"Find \"it\"","_meta""#
            );
            let together = routes.listing(None, ListKind::Tools).text();
            assert!(together.starts_with(&first), "{together}");
            let second = format!(r#"{{"title":"Get","name":"{prefix}get","inputSchema":{{"type":"object"}},"_meta""#);
            assert!(together.contains(&second), "{together}");
        }
    }

    #[test]
    fn a_uri_leads_only_to_its_own_backend() {
        let routes = routes(&[
            with_resources(offer("a", &[]), &["file:///same", "file:///a"]),
            with_resources(offer("b", &[]), &["file:///same", "ui://page"]),
        ]);
        for (uri, found) in [
            ("a+file:///a", Some(target(0, "file:///a"))),
            ("file:///a", Some(target(0, "file:///a"))),
            ("file:///same", None),
            ("b+file:///same", Some(target(1, "file:///same"))),
            ("b+file:///a", Some(target(1, "file:///a"))),
            ("ui://b/page", Some(target(1, "ui://page"))),
            ("ui://c/page", None),
            ("c+file:///a", None),
        ] {
            assert_eq!(routes.resource(uri), found, "{uri}");
        }
    }

    #[test]
    fn pages_have_all_items_once_and_in_order() {
        let names: Vec<String> = (0..50).map(|at| format!("tool_{at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let routes = routes(&[offer("a", &names)]);
        let listing = routes.listing(None, ListKind::Tools);
        for bytes_max in [0, 300, 1_000, 1_000_000] {
            let (mut from, mut pages) = (Some(0), Vec::new());
            while let Some(at) = from {
                let page = listing.page(at, bytes_max).unwrap();
                assert!(
                    page.text.len() <= bytes_max || !page.text.contains("},{\"input"),
                    "{}",
                    page.text
                );
                pages.push(page.text);
                from = page.next;
            }
            assert_eq!(pages.join(","), listing.text(), "pages of {bytes_max}");
        }
        assert_eq!(listing.page(51, 100), None);
        let empty = Listing::default();
        assert_eq!(empty.page(0, 100), Some(ListPage { text: "", next: None }));
    }

    fn never(own: &[&'static str]) -> Naming {
        Naming {
            prefix: Prefix::Never,
            own_tools: own.iter().copied().collect(),
            ..Naming::default()
        }
    }

    fn listed(routes: &RoutingTable) -> Vec<&str> {
        let listing = routes.listing(None, ListKind::Tools);
        listing.offered().map(|(name, _)| name).collect()
    }

    #[test]
    fn without_prefixes_only_ambiguous_names_keep_theirs() {
        let offers = [
            offer("a", &["log", "same", "send", "b__x", "x.y"]),
            offer("b", &["same", "x"]),
        ];
        let routes = RoutingTable::new(&offers, &never(&["send"]));
        let names = listed(&routes);
        assert_eq!(names[..4], ["log", "a__same", "a__send", "a__b__x"]);
        assert!(names[4].starts_with("x_y_"), "{names:?}");
        assert_eq!(names[5..], ["b__same", "x"]);
        let listing = routes.listing(None, ListKind::Tools);
        let ambiguous: Vec<&str> = listing.ambiguous().iter().map(|name| &**name).collect();
        assert_eq!(ambiguous, ["a__b__x", "a__same", "a__send", "b__same"]);
        for (name, found) in [
            ("log", Some(target(0, "log"))),
            ("a__log", Some(target(0, "log"))),
            ("a.log", Some(target(0, "log"))),
            ("b__x", Some(target(1, "x"))),
            ("same", None),
            ("send", None),
        ] {
            assert_eq!(tool(&routes, name), found.as_ref(), "{name}");
        }
        let text: Value = serde_json::from_str(&format!("[{}]", listing.text())).unwrap();
        assert_eq!(text[0]["name"], "log");
        assert_eq!(
            text[0]["_meta"][BACKEND_META],
            json!({"name": "a", "tool": "log"}),
            "the list says which backend has it"
        );
    }

    #[test]
    fn resources_keep_their_prefix() {
        let routes = RoutingTable::new(&[with_resources(offer("a", &[]), &["file:///a"])], &never(&[]));
        let resources = routes.listing(None, ListKind::Resources);
        assert_eq!(resources.offered().next().unwrap().0, "a+file:///a");
    }

    #[test]
    fn a_single_enabled_backend_is_alone_where_the_rule_says_so() {
        let mut disabled = offer("a", &["x"]);
        let mut config = (*disabled.config).clone();
        config.is_disabled = true;
        disabled.config = Arc::new(config);
        for (prefix, single) in [(Prefix::Auto, Some(1)), (Prefix::Always, None), (Prefix::Never, None)] {
            let naming = Naming {
                prefix,
                ..Naming::default()
            };
            let offers = [disabled.clone(), offer("b", &["x"])];
            assert_eq!(RoutingTable::new(&offers, &naming).single(), single, "{prefix:?}");
            let offers = [offer("a", &["x"]), offer("b", &["x"])];
            assert_eq!(RoutingTable::new(&offers, &naming).single(), None, "{prefix:?}");
        }
    }

    proptest! {
        #[test]
        fn each_offered_tool_leads_to_its_origin(tools in proptest::collection::btree_set("[a-c_.:]{1,6}", 0..20)) {
            let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
            let offers = [offer("a", &tools), offer("a-b", &tools)];
            let routes = routes(&offers);
            for backend in 0..2 {
                let all = routes.listing(None, ListKind::Tools).offered();
                let listed: Vec<_> = all.filter(|(_, target)| target.backend == backend).collect();
                prop_assert_eq!(listed.len(), tools.len());
                for (name, target) in listed {
                    prop_assert_eq!(tool(&routes, name), Some(target));
                }
            }
        }

        #[test]
        fn names_without_prefixes_are_unique_stable_and_beside_those_with_one(
            first in proptest::collection::btree_set("[ab_.]{1,6}", 0..12),
            second in proptest::collection::btree_set("[ab_.]{1,6}", 0..12),
        ) {
            let tools = [&first, &second].map(|tools| tools.iter().map(String::as_str).collect::<Vec<_>>());
            let offers = [offer("a", &tools[0]), offer("b", &tools[1])];
            let (bare, prefixed) = (RoutingTable::new(&offers, &never(&["a", "bb"])), routes(&offers));
            let names = listed(&bare);
            let unique: BTreeSet<_> = names.iter().collect();
            prop_assert_eq!(unique.len(), first.len() + second.len());
            let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            for (name, target) in bare.listing(None, ListKind::Tools).offered() {
                prop_assert!((1..=51).contains(&name.len()) && name.chars().all(is_legal), "{}", name);
                prop_assert!(!["a", "bb"].contains(&name), "the broker has it");
                prop_assert_eq!(tool(&bare, name), Some(target));
            }
            for (name, target) in prefixed.listing(None, ListKind::Tools).offered() {
                prop_assert_eq!(tool(&bare, name), Some(target), "{} is accepted at all times", name);
            }
            // The order of the backends changes no name.
            let turned = [offers[1].clone(), offers[0].clone()];
            let turned = RoutingTable::new(&turned, &never(&["a", "bb"]));
            let sorted = |routes: &RoutingTable| {
                let listing = routes.listing(None, ListKind::Tools);
                listing.offered().map(|(name, _)| name.to_owned()).collect::<BTreeSet<_>>()
            };
            prop_assert_eq!(sorted(&bare), sorted(&turned));
        }
    }
}
