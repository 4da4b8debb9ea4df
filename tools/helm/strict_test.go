// Package helm checks the chart's manifests against the types of Kubernetes, the Gateway API and
// the Prometheus operator.
package helm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// decoder refuses unknown and repeated fields, and kinds that it does not know.
func decoder(t *testing.T) runtime.Decoder {
	t.Helper()
	all := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(all), gatewayv1.Install(all),
		monitoringv1.AddToScheme(all)); err != nil {
		t.Fatal(err)
	}
	return serializer.NewCodecFactory(all, serializer.EnableStrict).UniversalDeserializer()
}

// decode decodes each manifest of a YAML stream, and returns the kinds.
func decode(d runtime.Decoder, text []byte) (kinds []string, err error) {
	for _, manifest := range bytes.Split(text, []byte("\n---\n")) {
		if len(bytes.TrimSpace(bytes.TrimPrefix(manifest, []byte("---")))) == 0 {
			continue
		}
		_, kind, err := d.Decode(manifest, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, manifest)
		}
		kinds = append(kinds, kind.Kind)
	}
	return kinds, nil
}

// TestManifests renders the chart with each file of values, and decodes all that comes out.
func TestManifests(t *testing.T) {
	d := decoder(t)
	path, err := exec.Command("go", "tool", "-n", "helm").Output()
	if err != nil {
		t.Fatalf("go tool -n helm: %v", err)
	}
	files, err := filepath.Glob("../../deploy/helm/mooring/ci/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("there are %d files of values, %v", len(files), err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		var stderr bytes.Buffer
		cmd := exec.Command(strings.TrimSpace(string(path)), "template", "test",
			"../../deploy/helm/mooring", "-f", file)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("helm template with %s: %v\n%s", file, err, &stderr)
			continue
		}
		kinds, err := decode(d, out)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		t.Logf("%s: %s", filepath.Base(file), strings.Join(kinds, " "))
		for _, kind := range kinds {
			seen[kind] = true
		}
	}
	for _, kind := range []string{
		"ConfigMap", "Deployment", "GRPCRoute", "HTTPRoute", "HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "Pod",
		"PodDisruptionBudget", "PrometheusRule", "Service", "ServiceAccount", "ServiceMonitor",
	} {
		if !seen[kind] {
			t.Errorf("no file of values gives a %s", kind)
		}
	}
}

// TestAutoscaler upgrades a release to one with an autoscaler and back, as Helm does it on the
// server. The number of replicas must stay if docs/operations.md was followed, and no later upgrade
// may change what the autoscaler sets, but one that switches it off as the page says.
func TestAutoscaler(t *testing.T) {
	docs, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	before := regexp.MustCompile(`(?m)^ +({apiVersion: apps/v1, kind: Deployment.*})$`).
		FindSubmatch(docs)
	if before == nil {
		t.Fatal("docs/operations.md has no Deployment to apply")
	}
	force := bytes.Contains(docs, []byte("--force-conflicts"))
	fixed := deployment(t, "replicas=5")
	scaled := deployment(t, "autoscaling.enabled=true")
	for _, row := range []struct {
		name string
		with bool
		want int32
	}{
		{"without what the page says", false, 1},
		{"with it", true, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			client := fake.NewClientset().AppsV1().Deployments("default")
			try := func(manager string, manifest []byte, force bool) (*appsv1.Deployment, error) {
				return client.Patch(t.Context(), "mooring", types.ApplyYAMLPatchType, manifest,
					metav1.PatchOptions{FieldManager: manager, Force: &force})
			}
			apply := func(manager string, manifest []byte) *appsv1.Deployment {
				t.Helper()
				d, err := try(manager, manifest, false)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			apply("helm", fixed)
			if row.with {
				apply("autoscaling", before[1])
			}
			d := apply("helm", scaled)
			if got := replicas(d); got != row.want {
				t.Fatalf("replicas = %d, want %d", got, row.want)
			}
			d.Spec.Replicas = new(int32(7))
			if _, err := client.Update(t.Context(), d, metav1.UpdateOptions{
				FieldManager: "kube-controller-manager",
			}); err != nil {
				t.Fatal(err)
			}
			if got := replicas(apply("helm", scaled)); got != 7 {
				t.Errorf("after another upgrade replicas = %d, want the autoscaler's 7", got)
			}
			if _, err := try("helm", fixed, false); !apierrors.IsConflict(err) {
				t.Errorf("without what the page says the way back ends with %v", err)
			}
			if d, err = try("helm", fixed, force); err != nil {
				t.Fatal(err)
			}
			if got := replicas(d); got != 5 {
				t.Errorf("after the way back replicas = %d, want the release's 5", got)
			}
		})
	}
}

// replicas returns what Kubernetes makes of the number.
func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// deployment returns the Deployment of a release named mooring, with one more value.
func deployment(t *testing.T, set string) []byte {
	t.Helper()
	path, err := exec.Command("go", "tool", "-n", "helm").Output()
	if err != nil {
		t.Fatalf("go tool -n helm: %v", err)
	}
	const chart = "../../deploy/helm/mooring"
	var stderr bytes.Buffer
	cmd := exec.Command(strings.TrimSpace(string(path)), "template", "mooring", chart,
		"-f", chart+"/ci/minimal.yaml", "--set", set, "--show-only", "templates/deployment.yaml")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, &stderr)
	}
	return out
}

// TestAlerts checks that the PrometheusRule has each alert of the chart's file, if only the value
// that turns it on is set.
func TestAlerts(t *testing.T) {
	path, err := exec.Command("go", "tool", "-n", "helm").Output()
	if err != nil {
		t.Fatalf("go tool -n helm: %v", err)
	}
	const chart = "../../deploy/helm/mooring"
	var stderr bytes.Buffer
	cmd := exec.Command(strings.TrimSpace(string(path)), "template", "test", chart,
		"-f", chart+"/ci/minimal.yaml", "--set", "metrics.prometheusRule.enabled=true",
		"--show-only", "templates/prometheusrule.yaml")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, &stderr)
	}
	object, _, err := decoder(t).Decode(out, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	rule, ok := object.(*monitoringv1.PrometheusRule)
	if !ok {
		t.Fatalf("the manifest is a %T, want a PrometheusRule", object)
	}
	var got, want []string
	for _, group := range rule.Spec.Groups {
		for _, r := range group.Rules {
			got = append(got, r.Alert)
		}
	}
	file, err := os.ReadFile(chart + "/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllSubmatch(file, -1) {
		want = append(want, string(match[1]))
	}
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the PrometheusRule has the alerts %q, the file %q", got, want)
	}
}

// TestStrict checks that the decoder would notice.
func TestStrict(t *testing.T) {
	d := decoder(t)
	for name, manifest := range map[string]string{
		"an unknown field":  "apiVersion: v1\nkind: Service\nspec:\n  port: 1\n",
		"a repeated field":  "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  name: b\n",
		"a wrong type":      "apiVersion: v1\nkind: Service\nspec:\n  ports: 1\n",
		"an unknown kind":   "apiVersion: v1\nkind: Servise\n",
		"a field of a rule": "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec:\n  group: []\n",
	} {
		if _, err := decode(d, []byte(manifest)); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	if kinds, err := decode(d, []byte("---\napiVersion: v1\nkind: Service\n\n---\n")); err != nil ||
		len(kinds) != 1 {
		t.Errorf("a Service gives %q, %v", kinds, err)
	}
}
