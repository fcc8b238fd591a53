"""Objects that several tests use."""


def configmap(name="settings", labels=None, **data):
    meta = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def container(name="web", image="nginx:1.27", **more):
    return {"name": name, "image": image, **more}


def deployment(name="web", replicas=2, **container_fields):
    labels = {"app": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                     "template": {"metadata": {"labels": labels},
                                  "spec": {"containers": [container(name, **container_fields)]}}}}


def pod(name="one", **spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [container()], **spec}}


def service(name="web", **spec):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}], **spec}}


def node(name):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}


def crd(plural="fabrics", kind="Fabric", group="weave.example.com", **version):
    """A custom kind with a schema, a default, a CEL rule, columns and both subresources."""
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object", "required": ["threads"],
                "properties": {
                    "threads": {"type": "integer", "minimum": 1},
                    "replicas": {"type": "integer", "default": 1},
                    "colour": {"type": "string", "default": "indigo", "enum": ["indigo", "ecru"],
                               "description": "What the cloth is dyed with."},
                },
                "x-kubernetes-validations": [{"rule": "self.threads % 2 == 0", "message": "threads come in pairs"}],
            },
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}}},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "shortNames": [plural[:3]]},
            "versions": [{
                "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                                                         "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [{"name": "Threads", "type": "integer", "jsonPath": ".spec.threads"}],
                "selectableFields": [{"jsonPath": ".spec.colour"}],
                **version}],
        },
    }
