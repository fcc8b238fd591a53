//! The first example of the reference, and what can go wrong with it, on the engine alone.

use bytes::Bytes;
use kinds::{ObjectKey, names};
use serde_json::{Value, json};

use crate::{
    Id, Key,
    config::CONFIG,
    engine::{Conflict, Content, Engine},
    facts::{Instance, Location, Placement, map},
};

fn target(engine: &mut Engine, name: &str, edit: impl FnOnce(&mut Instance)) {
    let mut instance = Instance {
        uid: format!("{name}-uid").into(),
        labels: map(&json!({"id": name})),
        ready: true,
        ..Instance::default()
    };
    edit(&mut instance);
    engine.set_target(&Id::new("root:imw-1", name), Some(instance));
}

fn location(engine: &mut Engine, name: &str, labels: Value) {
    let value = json!({"metadata": {"labels": labels, "annotations": {"loc-name": name}},
        "spec": {"instanceSelector": {"matchLabels": {"id": name}}}});
    engine.set_location(&Id::new("root:imw-1", name), Location::read(&value));
}

fn object(engine: &mut Engine, workspace: &str, key: &str, mut value: Value) {
    let of = ObjectKey::parse(key).unwrap();
    value["kind"] = "X".into();
    value["metadata"]["name"] = of.name.into();
    if !of.namespace.is_empty() {
        value["metadata"]["namespace"] = of.namespace.into();
    }
    engine.set_object(workspace, &of, Some(&Bytes::from(value.to_string())), 1);
}

fn placement(created: &str, locations: Value, namespaces: Value, upsync: Value) -> Value {
    json!({"metadata": {"uid": format!("u{created}"), "creationTimestamp": created}, "spec": {"upsync": upsync,
        "locationSelectors": [{"matchLabels": locations}], "namespaceSelector": {"matchLabels": namespaces}}})
}

fn example() -> Engine {
    let mut engine = Engine::default();
    engine.set_inventory("root:imw-1", true);
    for (name, labels) in [("florin", json!({"env": "prod"})), ("guilder", json!({"env": "prod", "extended": "si"}))] {
        target(&mut engine, name, |_| {});
        location(&mut engine, name, labels);
    }
    let one = json!({"apiGroup": "group1.test", "resources": ["sprockets", "flanges"], "namespaces": ["orbital"], "names": ["george", "cosmo"]});
    let two = json!({"apiGroup": "group2.test", "resources": ["cogs"], "names": ["william"]});
    let three = json!({"apiGroup": "group3.test", "resources": ["widgets"], "names": ["*"]});
    let c = placement("1", json!({"env": "prod"}), json!({"common": "si"}), json!([one, two]));
    let s = placement("2", json!({"env": "prod", "extended": "si"}), json!({"special": "si"}), json!([one, three]));
    engine.set_placement(&c_id(), Placement::read(&c));
    engine.set_placement(&s_id(), Placement::read(&s));
    for (workspace, namespace, label, deployment) in
        [(WMW_C, "commonstuff", "common", "commond"), (WMW_S, "specialstuff", "special", "speciald")]
    {
        let namespace_key = format!("core/namespaces//{namespace}");
        object(
            &mut engine,
            workspace,
            &namespace_key,
            json!({"apiVersion": "v1", "metadata": {"labels": {label: "si"}}}),
        );
        object(
            &mut engine,
            workspace,
            &format!("core/configmaps/{namespace}/httpd-htdocs"),
            json!({"apiVersion": "v1"}),
        );
        object(
            &mut engine,
            workspace,
            &format!("apps/deployments/{namespace}/{deployment}"),
            json!({"apiVersion": "apps/v1"}),
        );
    }
    engine
}

const WMW_C: &str = "root:my-org:wmw-c";
const WMW_S: &str = "root:my-org:wmw-s";

fn c_id() -> Id {
    Id::new(WMW_C, "edge-placement-c")
}

fn s_id() -> Id {
    Id::new(WMW_S, "edge-placement-s")
}

fn edge(name: &str) -> Id {
    Id::new("root:imw-1", name)
}

fn holds(engine: &Engine, name: &str) -> Vec<String> {
    let contents = engine.contents(&engine.class_of(&edge(name)));
    contents.keys().filter(|key| &***key != CONFIG).map(|key| key.to_string()).collect()
}

fn content(engine: &Engine, name: &str, key: &str) -> Value {
    match engine.render(&engine.class_of(&edge(name)), key) {
        Some(Content::Whole(content)) => serde_json::from_slice(&content).unwrap(),
        other => panic!("{key} on {name} is {other:?}"),
    }
}

#[test]
fn the_two_edges_hold_what_the_reference_says() {
    let engine = example();
    let destinations = |id: &Id| -> Vec<String> {
        engine.schedule().destinations(id).iter().map(|one| one.target.name.to_string()).collect()
    };
    assert_eq!(destinations(&c_id()), ["florin", "guilder"]);
    assert_eq!(destinations(&s_id()), ["guilder"]);
    let common = [
        "apps/deployments/commonstuff/commond",
        "core/configmaps/commonstuff/httpd-htdocs",
        "core/namespaces//commonstuff",
    ];
    assert_eq!(holds(&engine, "florin"), common);
    assert_eq!(holds(&engine, "guilder").len(), 6);
    let namespace = content(&engine, "florin", "core/namespaces//commonstuff");
    assert_eq!(namespace["metadata"]["labels"], json!({names::PROJECTED: "yes"}), "its own labels stay");

    let florin = &content(&engine, "florin", CONFIG)["spec"];
    let resources = json!([{"group": "", "resource": "configmaps", "apiVersion": "v1"}, {"group": "apps", "resource": "deployments", "apiVersion": "v1"}]);
    assert_eq!(florin["namespaceScope"], json!({"namespaces": ["commonstuff"], "resources": resources}));
    assert_eq!(florin["upsync"].as_array().unwrap().len(), 2);
    let guilder = &content(&engine, "guilder", CONFIG)["spec"];
    assert_eq!(guilder["namespaceScope"]["namespaces"], json!(["commonstuff", "specialstuff"]));
    let groups: Vec<&str> =
        guilder["upsync"].as_array().unwrap().iter().map(|set| set["apiGroup"].as_str().unwrap()).collect();
    assert_eq!(groups, ["group1.test", "group2.test", "group3.test"], "what two ask for is asked for once");
}

#[test]
fn each_location_gets_its_own_and_equal_ones_share() {
    let mut engine = example();
    let florin_s = engine.class_of(&edge("florin"));
    let page = "core/configmaps/commonstuff/httpd-htdocs";
    object(
        &mut engine,
        WMW_C,
        page,
        json!({"apiVersion": "v1", "metadata": {"annotations": {"edge.kcp.io/expand-parameters": "true"}},
        "data": {"page": "%(env) at %(loc-name)"}}),
    );
    assert!(engine.take_changes().edges.contains(&edge("florin")));
    assert_ne!(engine.class_of(&edge("florin")), florin_s);
    assert_eq!(content(&engine, "florin", page)["data"]["page"], "prod at florin");
    assert_eq!(content(&engine, "guilder", page)["data"]["page"], "prod at guilder");
    // Of what is not named nobody becomes another.
    let before = engine.class_of(&edge("florin"));
    location(&mut engine, "florin", json!({"env": "prod", "colour": "red"}));
    assert_eq!(engine.class_of(&edge("florin")), before);
}

#[test]
fn a_broken_customization_holds_that_object_only() {
    let mut engine = example();
    let page = "core/configmaps/commonstuff/httpd-htdocs";
    object(
        &mut engine,
        WMW_C,
        page,
        json!({"apiVersion": "v1", "metadata": {"annotations": {"edge.kcp.io/customizer": "tune"}}}),
    );
    let faults = engine.faults(&c_id(), 20);
    assert_eq!((faults[0].object.as_str(), faults[0].location.clone()), (page, Some(edge("florin"))));
    assert!(faults[0].reason.contains("there is no Customizer"), "{faults:?}");
    let held = |engine: &Engine| {
        engine.contents(&engine.class_of(&edge("florin"))).values().filter(|c| matches!(c, Content::Held(_))).count()
    };
    assert_eq!((held(&engine), holds(&engine, "florin").len()), (1, 3));
    assert_eq!(engine.faults(&s_id(), 20), []);
    object(
        &mut engine,
        WMW_C,
        "edge.kcp.io/customizers/commonstuff/tune",
        json!({"replacements": [{"path": "$.data.a", "value": "\"b\""}]}),
    );
    assert_eq!((held(&engine), engine.faults(&c_id(), 20)), (0, vec![]));
    assert_eq!(content(&engine, "florin", page)["data"]["a"], "b");
}

#[test]
fn a_namespace_belongs_to_who_came_first_and_the_other_says_so() {
    let mut engine = example();
    let (theirs, ours) = ("core/configmaps/both/a", "core/configmaps/both/b");
    for (workspace, label, key) in [(WMW_S, "special", theirs), (WMW_C, "common", ours)] {
        let labels = json!({"apiVersion": "v1", "metadata": {"labels": {label: "si"}}});
        object(&mut engine, workspace, "core/namespaces//both", labels);
        object(&mut engine, workspace, key, json!({"apiVersion": "v1", "data": {"of": workspace}}));
        // What is recorded says who was first; the placement of the other is older.
        for (id, now) in [(s_id(), 7), (c_id(), 8)] {
            let tenure = engine.tenure(&id, now);
            tenure.into_iter().for_each(|tenure| engine.set_tenure(&id, Some(tenure)));
        }
    }
    assert!(engine.take_changes().placements.is_superset(&[c_id(), s_id()].into()));
    assert_eq!(content(&engine, "guilder", theirs)["data"]["of"], WMW_S);
    assert!(!holds(&engine, "guilder").contains(&ours.to_owned()), "not into a namespace of another");
    assert!(holds(&engine, "florin").contains(&ours.to_owned()), "where they do not meet it is ours");
    assert_eq!(engine.source(&engine.class_of(&edge("guilder")), "core/namespaces//both"), Some(s_id()));
    assert_eq!(engine.conflicts(&s_id()), []);
    let lost = Conflict::Namespace { namespace: "both".into(), edge: edge("guilder"), location: edge("guilder") };
    assert_eq!(engine.conflicts(&c_id()), [lost]);
    assert!(engine.tenure(&c_id(), 9).is_none() && engine.tenure(&s_id(), 9).is_none(), "all is recorded");
    // Given back when its owner is gone.
    engine.set_placement(&s_id(), None);
    assert_eq!(engine.conflicts(&c_id()), []);
    assert!(holds(&engine, "guilder").contains(&ours.to_owned()));
    assert_eq!(engine.tenure(&c_id(), 9).map(|tenure| tenure.namespaces["both"].since), Some(9));
}

#[test]
fn what_concerns_the_whole_edge_needs_trust() {
    let mut engine = example();
    let everything = json!([{"apiGroup": "*", "resources": ["*"], "resourceNames": ["*"]}]);
    let mut c = placement("1", json!({"env": "prod"}), json!({}), json!([]));
    c["spec"]["nonNamespacedObjects"] = everything;
    engine.set_placement(&c_id(), Placement::read(&c));
    let role = "rbac.authorization.k8s.io/clusterrolebindings//all";
    object(&mut engine, WMW_C, role, json!({"apiVersion": "v1"}));
    object(&mut engine, WMW_C, "core/secrets/default/a", json!({"apiVersion": "v1"}));
    engine.take_changes();
    assert!(!holds(&engine, "florin").iter().any(|key| key == role || key.contains("/default/")));
    let namespace = content(&engine, "florin", "core/namespaces//commonstuff");
    assert_eq!(namespace["metadata"]["annotations"][names::EXCLUSIVE], "true");
    let [Conflict::Untrusted { objects, location, .. }] = &engine.conflicts(&c_id())[..] else { panic!("no conflict") };
    assert_eq!((objects.len(), location), (2, &edge("florin")));
    for name in ["florin", "guilder"] {
        let value = json!({"metadata": {"labels": {"env": "prod"}}, "spec": {"trustedWorkspaces": [WMW_C],
            "instanceSelector": {"matchLabels": {"id": name}}}});
        engine.set_location(&edge(name), Location::read(&value));
        let changes = engine.take_changes();
        assert!(changes.edges.contains(&edge(name)) && changes.placements.contains(&c_id()));
    }
    assert!(holds(&engine, "florin").iter().any(|key| key == role));
    assert_eq!(engine.conflicts(&c_id()), []);
}

#[test]
fn an_unschedulable_edge_keeps_what_it_has_until_it_is_evicted() {
    let mut engine = example();
    let later = |evict_after| {
        move |instance: &mut Instance| (instance.unschedulable, instance.evict_after) = (true, evict_after)
    };
    target(&mut engine, "florin", later(None));
    assert_eq!(holds(&engine, "florin").len(), 3);
    location(&mut engine, "florin", json!({"env": "prod", "extended": "si"}));
    assert_eq!(holds(&engine, "florin").len(), 3, "nothing new comes");
    target(&mut engine, "florin", later(Some(100)));
    engine.tick(99);
    assert_eq!((holds(&engine, "florin").len(), engine.schedule().next_tick()), (3, Some(100)));
    engine.tick(100);
    assert_eq!(holds(&engine, "florin").len(), 0);
    target(&mut engine, "florin", |_| {});
    assert_eq!(holds(&engine, "florin").len(), 6, "it is open again");
    // In another life of the center it is known from what was written.
    let mut again = Engine::default();
    again.set_inventory("root:imw-1", true);
    let everywhere = placement("1", json!({}), json!({}), json!([]));
    again.set_placement(&c_id(), Placement::read(&everywhere));
    again.set_placement(&s_id(), Placement::read(&everywhere));
    location(&mut again, "florin", json!({}));
    again.recall("florin-uid", c_id());
    target(&mut again, "florin", later(None));
    assert_eq!(again.schedule().reaching(&edge("florin")), [(&c_id(), &edge("florin"))]);
}

#[test]
fn inventory_serves_those_around_it_and_nobody_draws_a_neighbours_objects() {
    use crate::schedule::is_offered;
    for (home, is_inventory, workspace, offered) in [
        ("root:imw-1", true, "root:my-org:wmw-c", true),
        ("root", false, "root:my-org:wmw-c", true),
        ("root:my-org:imw", true, "root:my-org:wmw-c", true),
        ("root:my-org:imw", true, "root:other:wmw", false),
        ("root:my-org:imw", true, "root:my-organism", false),
        ("root:evil", false, "root:my-org:wmw-c", false),
        ("root:my-org:wmw-s", false, "root:my-org:wmw-c", false),
        ("root:my-org:wmw-s", false, "root:my-org:wmw-s", true),
    ] {
        assert_eq!(is_offered(home, is_inventory, workspace), offered, "{home} {workspace}");
    }
}

#[test]
fn a_namespace_that_is_being_deleted_is_withdrawn_at_once() {
    let mut engine = example();
    let class = engine.class_of(&edge("florin"));
    engine.hold(&class);
    engine.take_changes();
    let ending = json!({"apiVersion": "v1", "metadata": {"labels": {"common": "si"}, "deletionTimestamp": "t"}});
    object(&mut engine, WMW_C, "core/namespaces//commonstuff", ending);
    assert_eq!(holds(&engine, "florin"), [""; 0], "its objects are still there at the center");
    let changed: Vec<String> = engine.take_changes().keys[&class].iter().map(|key| key.to_string()).collect();
    for key in holds(&example(), "florin") {
        assert!(changed.contains(&key), "{key} changes in the same step");
    }
    // One that is to stay at the center stays with what is in it, and comes when it may.
    let here = json!({"labels": {"common": "si"}, "annotations": {names::ONLY: names::ONLY_CENTER}});
    object(&mut engine, WMW_C, "core/namespaces//commonstuff", json!({"apiVersion": "v1", "metadata": here}));
    assert_eq!(holds(&engine, "florin"), [""; 0]);
    let open = json!({"apiVersion": "v1", "metadata": {"labels": {"common": "si"}}});
    object(&mut engine, WMW_C, "core/namespaces//commonstuff", open);
    assert_eq!(holds(&engine, "florin").len(), 3);
}

#[test]
fn only_what_owners_do_themselves_is_intended() {
    let spec = |locations: Value, removal: &str| {
        let mut value = placement("1", locations, json!({"common": "si"}), json!([]));
        value["spec"]["removal"] = removal.into();
        Placement::read(&value)
    };
    let prod = || json!({"env": "prod"});
    let florin = edge("florin");
    let left = |engine: &Engine| engine.removed(&florin).map(|(id, _)| id.clone()).collect::<Vec<_>>();
    // It is deleted, with the intent and without.
    for (removal, intended) in [("Allow", true), ("Ask", false)] {
        let mut engine = example();
        engine.set_placement(&c_id(), spec(prod(), removal));
        assert_eq!(engine.intends(&c_id(), &florin), intended, "objects that it selects are deleted");
        engine.set_placement(&c_id(), None);
        assert_eq!((engine.intends(&c_id(), &florin), left(&engine)), (intended, vec![c_id()]));
        let removal = engine.removal(&c_id()).unwrap();
        assert!(removal.keys.iter().any(|key| &**key == "apps/deployments/commonstuff/commond"));
        assert_eq!(removal.edges.keys().cloned().collect::<Vec<_>>(), [florin.clone(), edge("guilder")]);
        // Another one of that name states the intent afterwards.
        engine.set_placement(&c_id(), spec(json!({"env": "none"}), "Allow"));
        assert!(engine.intends(&c_id(), &florin));
        assert_eq!(engine.settled(&florin), [c_id()]);
        assert!(!engine.intends(&c_id(), &florin) && left(&engine).is_empty());
    }
    // It is led elsewhere, with the intent in the same edit or a later one.
    let mut engine = example();
    engine.set_placement(&c_id(), spec(json!({"extended": "si"}), "Allow"));
    assert!(engine.intends(&c_id(), &florin) && left(&engine) == [c_id()]);
    engine.set_placement(&c_id(), spec(json!({"extended": "si"}), "Ask"));
    assert!(!engine.intends(&c_id(), &florin));
    engine.take_changes();
    engine.set_placement(&c_id(), spec(json!({"extended": "si"}), "Allow"));
    assert!(engine.intends(&c_id(), &florin) && engine.take_changes().edges.contains(&florin), "the edge hears of it");
    engine.set_placement(&c_id(), spec(prod(), "Allow"));
    assert!(left(&engine).is_empty(), "it is back");
    // A Location is relabelled, or a SyncTarget: that was not the owner of the placement.
    location(&mut engine, "florin", json!({"env": "prdo"}));
    assert!(!engine.intends(&c_id(), &florin) && left(&engine).is_empty());
    location(&mut engine, "florin", prod());
    assert!(engine.intends(&c_id(), &florin));
    target(&mut engine, "florin", |instance| instance.labels = map(&json!({"id": "else"})));
    assert!(!engine.intends(&c_id(), &florin));
    // What is left of an edge that is gone is nobody's business.
    engine.set_placement(&c_id(), None);
    engine.set_target(&edge("guilder"), None);
    assert!(engine.removal(&c_id()).is_none());
}

#[test]
fn what_is_gone_is_remembered_for_edges_that_hold_it_back_or_are_away() {
    let florin = edge("florin");
    let spec = |removal: &str| {
        let mut value = placement("1", json!({"env": "prod"}), json!({"common": "si"}), json!([]));
        value["spec"]["removal"] = removal.into();
        Placement::read(&value)
    };
    let map = ObjectKey::parse("core/configmaps/commonstuff/httpd-htdocs").unwrap();
    let key: Key = map.to_string().as_str().into();
    let mut engine = example();
    engine.set_placement(&c_id(), spec("Ask"));
    engine.set_object(WMW_C, &map, None, 2);
    assert!(engine.removal(&c_id()).is_none(), "edges that are connected are told at once");

    // The fuse holds it, and the owner states the intent later.
    assert!(engine.hold_back(&c_id(), &florin, [key.clone()]) && !engine.hold_back(&c_id(), &florin, [key.clone()]));
    assert!(!engine.hold_back(&c_id(), &edge("elsewhere"), [key.clone()]), "the placement does not reach it");
    assert!(!engine.intends(&c_id(), &florin));
    engine.take_changes();
    engine.set_placement(&c_id(), spec("Allow"));
    assert!(engine.intends(&c_id(), &florin) && engine.take_changes().edges.contains(&florin));
    assert_eq!(engine.removed(&florin).map(|(id, _)| id.clone()).collect::<Vec<_>>(), [c_id()]);
    assert_eq!(engine.settled(&florin), [c_id()]);
    assert!(engine.removal(&c_id()).is_none());

    // An edge that is away hears of what goes meanwhile when it comes back.
    target(&mut engine, "florin", |instance| (instance.joined, instance.ready) = (true, false));
    let deployment = ObjectKey::parse("apps/deployments/commonstuff/commond").unwrap();
    engine.set_object(WMW_C, &deployment, None, 3);
    let known = engine.removal(&c_id()).unwrap();
    assert_eq!(
        known.holding.keys().cloned().collect::<Vec<_>>(),
        std::slice::from_ref(&florin),
        "guilder is connected"
    );
    assert!(known.keys.iter().map(|key| &**key).eq(["apps/deployments/commonstuff/commond"]) && known.edges.is_empty());
    // A change of the inventory is nobody's intent, whatever the owner allowed before.
    location(&mut engine, "florin", json!({"env": "test"}));
    assert!(!engine.intends(&c_id(), &florin));
    engine.set_target(&florin, None);
    assert!(engine.removal(&c_id()).is_none());
}
