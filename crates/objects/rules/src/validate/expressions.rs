//! Expressions of webhooks and policies: compiled when they are written, so that what cannot be right is refused then.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::{Environment, Expression, Object, Type};

use super::node::Node;

/// What expressions in one object may read.
pub(super) struct Known {
    names: Vec<(String, Type)>,
    /// Shared with the environments that are made of it, so that many variables are not copied for each expression.
    variables: Arc<Object>,
    with_variables: bool,
}

fn no_variables() -> Arc<Object> {
    Arc::new(Object { name: "kubernetes.variables".to_owned(), fields: BTreeMap::new() })
}

fn object(name: &str, fields: &[(&str, Type)]) -> Type {
    let fields = fields.iter().map(|(field, ty)| ((*field).to_owned(), ty.clone())).collect();
    Type::Object(Arc::new(Object { name: name.to_owned(), fields }))
}

fn list(of: Type) -> Type {
    Type::List(Box::new(of))
}

fn map(of: Type) -> Type {
    Type::Map(Box::new(Type::Text), Box::new(of))
}

/// `request`, as upstream declares it.
fn request() -> Type {
    use Type::{Bool, Dyn, Text};
    let kind = object("kubernetes.GroupVersionKind", &[("group", Text), ("version", Text), ("kind", Text)]);
    let resource = object("kubernetes.GroupVersionResource", &[("group", Text), ("version", Text), ("resource", Text)]);
    let user = object(
        "kubernetes.UserInfo",
        &[("username", Text), ("uid", Text), ("groups", list(Text)), ("extra", map(list(Text)))],
    );
    object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", Text),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", Text),
            ("name", Text),
            ("namespace", Text),
            ("operation", Text),
            ("userInfo", user),
            ("dryRun", Bool),
            ("options", Dyn),
        ],
    )
}

/// `namespaceObject`, as upstream declares it.
fn namespace() -> Type {
    use Type::{Int, Text, Timestamp};
    let spec = object("kubernetes.NamespaceSpec", &[("finalizers", list(Text))]);
    let condition = object(
        "kubernetes.NamespaceCondition",
        &[("status", Text), ("type", Text), ("lastTransitionTime", Timestamp), ("message", Text), ("reason", Text)],
    );
    let status = object("kubernetes.NamespaceStatus", &[("conditions", list(condition)), ("phase", Text)]);
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", Text),
            ("generateName", Text),
            ("namespace", Text),
            ("labels", map(Text)),
            ("annotations", map(Text)),
            ("UID", Text),
            ("creationTimestamp", Timestamp),
            ("deletionGracePeriodSeconds", Int),
            ("deletionTimestamp", Timestamp),
            ("generation", Int),
            ("resourceVersion", Text),
            ("finalizers", list(Text)),
        ],
    );
    object("kubernetes.Namespace", &[("metadata", metadata), ("spec", spec), ("status", status)])
}

impl Known {
    /// What conditions may read.
    pub(super) fn of_conditions(with_params: bool) -> Self {
        let names = [
            ("object", Type::Dyn),
            ("oldObject", Type::Dyn),
            ("request", request()),
            ("namespaceObject", namespace()),
            ("authorizer", Type::Unknown),
        ];
        let mut names: Vec<(String, Type)> = names.map(|(name, ty)| (name.to_owned(), ty)).into();
        if with_params {
            names.push(("params".to_owned(), Type::Dyn));
        }
        Self { names, variables: no_variables(), with_variables: false }
    }

    pub(super) fn of_policy(with_params: bool) -> Self {
        Self { with_variables: true, ..Self::of_conditions(with_params) }
    }

    /// Messages are made without the authorizer.
    pub(super) fn of_messages(&self) -> Self {
        let names = self.names.iter().filter(|(name, _)| name != "authorizer").cloned().collect();
        Self { names, variables: self.variables.clone(), with_variables: self.with_variables }
    }

    /// The same with other types for `object`, `oldObject` and `params`: what is checked against the schemas of kinds.
    pub(super) fn typed(mut self, object: &Type, params: &Type) -> Self {
        for (name, ty) in &mut self.names {
            match name.as_str() {
                "object" | "oldObject" => *ty = object.clone(),
                "params" => *ty = params.clone(),
                _ => {}
            }
        }
        self
    }

    /// What selects devices reads one of them. Attributes may be anything, and nothing is declared of quantities.
    pub(super) fn of_device() -> Self {
        let device = object(
            "kubernetes.DRADevice",
            &[
                ("driver", Type::Text),
                ("attributes", map(map(Type::Dyn))),
                ("capacity", map(map(Type::Unknown))),
                ("allowMultipleAllocations", Type::Bool),
            ],
        );
        Self { names: vec![("device".to_owned(), device)], variables: no_variables(), with_variables: false }
    }

    /// Complains about what does not say of a device whether it is wanted.
    pub(super) fn check_device(&self, expression: Node<'_>) {
        match Expression::compile(expression.str(), &self.environment()) {
            Ok((_, ty)) if Type::Bool.fits(&ty) => {}
            Ok((_, ty)) => expression.invalid(&format!("must evaluate to bool or the unknown type, not {ty}")),
            Err(why) => expression.invalid_str(&format!("compilation failed: {why}")),
        }
    }

    fn environment(&self) -> Environment {
        let mut names = self.names.clone();
        if self.with_variables {
            names.push(("variables".to_owned(), Type::Object(self.variables.clone())));
        }
        Environment::new(names)
    }

    /// Compiles an expression; its type, or what is wrong with it.
    pub(super) fn compile(&self, source: &str) -> Result<Type, String> {
        Expression::compile(source, &self.environment()).map(|(_, ty)| ty)
    }

    /// Complains about an expression that is none, or that evaluates to something else than it must.
    pub(super) fn check(&self, expression: Node<'_>, wanted: &[Type]) -> Type {
        self.check_in(&self.environment(), expression, wanted)
    }

    /// The same for an expression that makes objects or patches.
    pub(super) fn check_mutation(&self, expression: Node<'_>, wanted: Type) {
        self.check_in(&self.environment().with_messages(), expression, &[wanted]);
    }

    fn check_in(&self, environment: &Environment, expression: Node<'_>, wanted: &[Type]) -> Type {
        if expression.str().trim().is_empty() {
            return Type::Unknown;
        }
        // What is only read from an object may be anything, which is not what is wanted.
        let fits = |compiled: &Expression, ty: &Type| {
            wanted.is_empty() || wanted.iter().any(|one| one.fits(ty)) && !(*ty == Type::Dyn && compiled.only_reads())
        };
        match Expression::compile(expression.str(), environment) {
            Ok((compiled, ty)) if fits(&compiled, &ty) => ty,
            Ok((_, ty)) => {
                let named = |ty: &Type| if *ty == Type::Null { "null_type".to_owned() } else { ty.to_string() };
                match wanted {
                    [one] => expression.invalid(&format!("must evaluate to {} but got {ty}", named(one))),
                    several => {
                        let several: Vec<String> = several.iter().map(named).collect();
                        expression.invalid(&format!("must evaluate to one of [{}] but got {ty}", several.join(" ")));
                    }
                }
                ty
            }
            Err(why) => {
                expression.invalid(&format!("compilation failed: {why}"));
                Type::Unknown
            }
        }
    }

    /// Declares a variable, which later expressions may read.
    pub(super) fn declare(&mut self, name: &str, ty: Type) {
        Arc::make_mut(&mut self.variables).fields.insert(name.to_owned(), ty);
    }
}
