"""A helm chart for tests."""

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: kiosk, annotations: {note: "{{ .Values.note | default "a" }}"}}
spec:
  selector: {matchLabels: {app: kiosk}}
  template:
    metadata: {labels: {app: kiosk}}
    spec: {containers: [{name: web, image: selvedge.dev/sample/web}]}
"""


def kiosk(directory, **templates):
    """A chart of one Deployment, and of other templates by their names."""
    chart = directory / "kiosk"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: kiosk\nversion: 0.1.0\n")
    for name, text in {"all": DEPLOYMENT, **templates}.items():
        (chart / "templates" / f"{name}.yaml").write_text(text)
    return chart
