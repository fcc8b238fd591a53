//! What an APIBinding's status should say, given everything it depends on. Pure.

use rules::crd::Definition;
use serde_json::{Value, json};

use super::{
    claims, compare,
    conditions::{self, State},
    schema,
};

/// What a binding depends on.
pub struct World<'a> {
    /// The workspace of the export.
    pub provider: &'a str,
    pub export: Option<Value>,
    /// The identity of the export, as its key says; none while that is not known.
    pub identity: Option<&'a str>,
    /// Whether the export can have given an entry of the old status.
    pub gave: &'a dyn Fn(&Value) -> bool,
    /// An APIResourceSchema of the provider's workspace by name.
    pub schema: &'a dyn Fn(&str) -> Option<Value>,
    /// Who has the names of this definition in the binding's workspace already.
    pub taken: &'a dyn Fn(&Definition) -> Option<String>,
}

/// The new status. Resources once bound stay bound, if the export can have given them: their objects are in the
/// workspace.
pub fn status(binding: &Value, world: &World<'_>, now: &str) -> Value {
    let mut status = if binding["status"].is_object() { binding["status"].clone() } else { json!({}) };
    let mut all = conditions::of(binding);
    let bound_before = status["phase"] == "Bound";
    let mut before = status["boundResources"].as_array().cloned().unwrap_or_default();
    before.retain(|one| (world.gave)(one));
    set_list(&mut status, "boundResources", before.clone());
    let export = match usable(world) {
        Ok(export) => {
            conditions::set(&mut all, "APIExportValid", &State::Good, now);
            export
        }
        Err(bad) => {
            conditions::set(&mut all, "APIExportValid", &bad, now);
            let ready = State::Bad("APIExportNotValid", "see the condition APIExportValid".to_owned());
            conditions::set(&mut all, "Ready", &ready, now);
            if !bound_before {
                status["phase"] = "Binding".into();
            }
            status["conditions"] = all.into();
            return status;
        }
    };
    status["apiExportClusterName"] = world.provider.into();
    let resources = resources(&before, export, world);
    let (bound, state) = match resources {
        Ok(bound) => (Some(bound), State::Good),
        Err(bad) => (None, bad),
    };
    if let Some(bound) = bound {
        set_list(&mut status, "boundResources", bound);
        status["phase"] = "Bound".into();
        conditions::set(&mut all, "InitialBindingCompleted", &State::Good, now);
    } else if !bound_before {
        status["phase"] = "Binding".into();
        let waits = State::Bad("WaitingForResources", "see the condition BindingUpToDate".to_owned());
        conditions::set(&mut all, "InitialBindingCompleted", &waits, now);
    }
    conditions::set(&mut all, "BindingUpToDate", &state, now);

    let (asked, answered) = (&export["spec"]["permissionClaims"], &binding["spec"]["permissionClaims"]);
    set_list(&mut status, "exportPermissionClaims", asked.as_array().cloned().unwrap_or_default());
    set_list(&mut status, "appliedPermissionClaims", claims::applied(asked, answered));
    let unasked = claims::unasked(asked, answered);
    let valid = if unasked.is_empty() {
        State::Good
    } else {
        State::Bad("InvalidPermissionClaims", format!("the APIExport does not claim {}", unasked.join(", ")))
    };
    conditions::set(&mut all, "PermissionClaimsValid", &valid, now);
    conditions::set(&mut all, "PermissionClaimsApplied", &State::Good, now);
    let ready = match &state {
        State::Good => State::Good,
        State::Bad(reason, message) => State::Bad(reason, message.clone()),
    };
    conditions::set(&mut all, "Ready", &ready, now);
    status["conditions"] = all.into();
    status
}

fn set_list(status: &mut Value, field: &str, list: Vec<Value>) {
    let Some(map) = status.as_object_mut() else { return };
    if list.is_empty() {
        map.remove(field);
    } else {
        map.insert(field.to_owned(), list.into());
    }
}

fn usable<'a>(world: &'a World<'_>) -> Result<&'a Value, State<'static>> {
    let Some(export) = &world.export else {
        return Err(State::Bad("APIExportNotFound", format!("there is no such APIExport in {}", world.provider)));
    };
    if world.identity.is_none() {
        let why = "the APIExport has no identity yet, or not the key of its identity: see its condition IdentityValid";
        return Err(State::Bad("IdentityNotReady", why.to_owned()));
    }
    Ok(export)
}

/// What is bound from now on: all of the export's resources, or nothing new.
fn resources(before: &[Value], export: &Value, world: &World<'_>) -> Result<Vec<Value>, State<'static>> {
    let identity = &Value::from(world.identity.unwrap_or_default());
    let mut bound: Vec<Value> = Vec::new();
    for name in export["spec"]["latestResourceSchemas"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        let Some(new) = (world.schema)(name) else {
            return Err(State::Bad(
                "APIResourceSchemaNotFound",
                format!("the APIExport names {name}, which is not there"),
            ));
        };
        let spec = &new["spec"];
        let definition = match Definition::compile(&schema::definition(&new)) {
            Ok(definition) => definition,
            Err(_) => {
                return Err(State::Bad(
                    "APIResourceSchemaInvalid",
                    format!("{name} is not a schema that can be served"),
                ));
            }
        };
        let is = |one: &&Value| one["group"] == spec["group"] && one["resource"] == spec["names"]["plural"];
        let old = before.iter().find(is);
        let same = old.is_some_and(|old| old["schema"]["UID"] == new["metadata"]["uid"]);
        if let Some(why) = (world.taken)(&definition) {
            return Err(State::Bad(
                "NamingConflicts",
                format!("{}.{}: {why}", definition.names.plural, definition.group),
            ));
        }
        if let Some(old) = old.filter(|old| !same && old["schema"]["identityHash"] == *identity)
            && let Some(before) = (world.schema)(old["schema"]["name"].as_str().unwrap_or_default())
        {
            let problems = compare::incompatible(&before["spec"], spec);
            if !problems.is_empty() {
                let message = format!("{name} does not fit what is bound: {}", problems.join("; "));
                return Err(State::Bad("IncompatibleSchema", message));
            }
        }
        bound.push(one_of(&new, &definition, old, same, identity));
    }
    let dropped = before
        .iter()
        .filter(|old| !bound.iter().any(|new| new["group"] == old["group"] && new["resource"] == old["resource"]));
    let dropped: Vec<Value> = dropped.cloned().collect();
    bound.extend(dropped);
    Ok(bound)
}

fn one_of(new: &Value, definition: &Definition, old: Option<&Value>, same: bool, identity: &Value) -> Value {
    let mut schema = json!({"name": new["metadata"]["name"], "UID": new["metadata"]["uid"], "identityHash": identity});
    let followed = old.is_some_and(|old| !same || old["schema"]["followed"] == true);
    if followed {
        schema["followed"] = true.into();
    }
    let mut stored: Vec<Value> = old.and_then(|old| old["storageVersions"].as_array().cloned()).unwrap_or_default();
    let storage = Value::from(&*definition.storage_version().name);
    if !stored.contains(&storage) {
        stored.push(storage);
    }
    json!({"group": new["spec"]["group"], "resource": new["spec"]["names"]["plural"], "schema": schema,
        "storageVersions": stored})
}

#[cfg(test)]
mod tests {
    use super::{super::schema::tests::widgets, *};

    fn condition<'a>(status: &'a Value, ty: &str) -> &'a Value {
        status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == ty).unwrap()
    }

    fn export(schema: &str) -> Value {
        json!({"spec": {"latestResourceSchemas": [schema], "permissionClaims": [{"group": "", "resource": "configmaps",
            "identityHash": "", "all": true}]}, "status": {"identityHash": "a status is not asked"}})
    }

    #[test]
    fn from_nothing_to_bound_and_on() {
        let small = widgets("v1", json!({"size": {"type": "integer"}}));
        let large = widgets("v2", json!({"size": {"type": "integer"}, "colour": {"type": "string"}}));
        let other = widgets("v3", json!({"size": {"type": "string"}}));
        let schema = |name: &str| match name.split('.').next() {
            Some("v1") => Some(small.clone()),
            Some("v2") => Some(large.clone()),
            Some("v3") => Some(other.clone()),
            _ => None,
        };
        let free = |_: &Definition| None;
        let world = |export| World {
            provider: "root:p",
            export,
            identity: Some("abc"),
            gave: &|_| true,
            schema: &schema,
            taken: &free,
        };
        let mut binding = json!({"spec": {"permissionClaims": [
            {"group": "", "resource": "configmaps", "identityHash": "", "all": true, "state": "Accepted"}]}});

        let mut step = |export: Option<Value>| {
            binding["status"] = status(&binding, &world(export.clone()), "t");
            assert_eq!(status(&binding, &world(export), "later"), binding["status"], "it has settled");
            binding["status"].clone()
        };
        let now = step(None);
        assert_eq!(
            (&now["phase"], &condition(&now, "APIExportValid")["reason"]),
            (&json!("Binding"), &json!("APIExportNotFound"))
        );
        let now = step(Some(export("none.widgets.example.io")));
        assert_eq!(condition(&now, "BindingUpToDate")["reason"], "APIResourceSchemaNotFound");
        assert!(now["boundResources"].is_null());
        let now = step(Some(export("v1.widgets.example.io")));
        assert_eq!((&now["phase"], &condition(&now, "Ready")["status"]), (&json!("Bound"), &json!("True")));
        assert_eq!(
            now["boundResources"][0],
            json!({"group": "example.io", "resource": "widgets",
            "schema": {"name": "v1.widgets.example.io", "UID": "uid-v1", "identityHash": "abc"}, "storageVersions": ["v1"]})
        );
        assert_eq!(now["appliedPermissionClaims"].as_array().unwrap().len(), 1);
        let now = step(Some(export("v2.widgets.example.io")));
        assert_eq!(
            (&now["boundResources"][0]["schema"]["UID"], &now["boundResources"][0]["schema"]["followed"]),
            (&json!("uid-v2"), &json!(true))
        );
        let now = step(Some(export("v3.widgets.example.io")));
        assert_eq!(condition(&now, "BindingUpToDate")["reason"], "IncompatibleSchema");
        assert_eq!((&now["phase"], &now["boundResources"][0]["schema"]["UID"]), (&json!("Bound"), &json!("uid-v2")));
        let now = step(None);
        assert_eq!((&now["phase"], &condition(&now, "Ready")["status"]), (&json!("Bound"), &json!("False")));
    }

    #[test]
    fn taken_names_are_not_bound() {
        let schema = |_: &str| Some(widgets("v1", json!({})));
        let taken = |d: &Definition| Some(format!("{} is somebody's", d.names.plural));
        let world = World {
            provider: "p",
            export: Some(export("v1.widgets.example.io")),
            identity: Some("abc"),
            gave: &|_| true,
            schema: &schema,
            taken: &taken,
        };
        let now = status(&json!({"spec": {}}), &world, "t");
        assert_eq!(condition(&now, "BindingUpToDate")["reason"], "NamingConflicts");
        assert!(now["boundResources"].is_null() && now["phase"] == "Binding");
    }

    #[test]
    fn what_was_never_given_is_dropped_and_what_was_given_stays() {
        let schema = |name: &str| (name == "v1.widgets.example.io").then(|| widgets("v1", json!({})));
        let free = |_: &Definition| None;
        let gave = |one: &Value| one["resource"] != "edgeplacements";
        let entry =
            |resource: &str| json!({"group": "x.io", "resource": resource, "schema": {"name": "n", "UID": "u"}});
        let before = [entry("looms"), entry("edgeplacements")];
        let old = json!({"spec": {}, "status": {"phase": "Bound", "boundResources": before}});
        let bound = |export: Option<Value>, identity: Option<&str>| {
            let world = World { provider: "p", export, identity, gave: &gave, schema: &schema, taken: &free };
            let now = status(&old, &world, "t");
            let all = now["boundResources"].as_array().cloned().unwrap_or_default();
            all.iter().map(|one| one["resource"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let there = || Some(export("v1.widgets.example.io"));
        assert_eq!(bound(there(), Some("abc")), ["widgets", "looms"]);
        assert_eq!(bound(there(), None), ["looms"], "an export without its key gives nothing new");
        assert_eq!(bound(None, None), ["looms"]);
    }
}
