package helm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// demanded are the values without which the chart does not render.
const demanded = "image.repository=r,uriSecret.name=a,handleKeysSecret.name=b,idempotencyKeySecret.name=c,allowPlaintext=true,allowUnauthenticated=true"

// TestRefused sets values that must not render, and looks for their names in the refusal.
func TestRefused(t *testing.T) {
	needHelm(t)
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"no image", []string{"--set", strings.Replace(demanded, "image.repository=r,", "", 1)}, "image/repository"},
		{"an image in upper case", []string{"--set", "image.repository=R"}, "/image/repository"},
		{"client certificates without their authorities", []string{"--set", "tlsSecret.name=x,config.tls.clientCertificates=required"}, "tlsSecret.clientAuthorityKey"},
		{"client certificates that probes do not have", []string{"--set", "tlsSecret.name=x,tlsSecret.clientAuthorityKey=ca,config.tls.clientCertificates=required,metrics.enabled=false"}, "metrics.enabled"},
		{"a certificate's file", []string{"--set", "config.tls.certificateFile=x"}, "certificateFile"},
		{"a digest that is none", []string{"--set", "image.digest=sha256:12"}, "/image/digest"},
		{"no connection string", []string{"--set", "uriSecret.name="}, "uriSecret.name"},
		{"no handle keys", []string{"--set", "handleKeysSecret.name="}, "handleKeysSecret.name"},
		{"no idempotency key", []string{"--set", "idempotencyKeySecret.name="}, "idempotencyKeySecret.name"},
		{"plain text by accident", []string{"--set", "allowPlaintext=false"}, "allowPlaintext"},
		{"no credential by accident", []string{"--set", "allowUnauthenticated=false"}, "allowUnauthenticated"},
		{"client certificates without TLS", []string{"--set", "tlsSecret.clientAuthorityKey=x"}, "tlsSecret.clientAuthorityKey"},
		{"a value that is unknown", []string{"--set", "replica=3"}, "replica"},
		{"a misspelled group", []string{"--set", "config.lgo.level=debug"}, "lgo"},
		{"a misspelled option", []string{"--set", "config.log.levle=debug"}, "levle"},
		{"a level that is none", []string{"--set", "config.log.level=loud"}, "/config/log/level"},
		{"a duration that is none", []string{"--set", "config.cursors.idle=soon"}, "/config/cursors/idle"},
		{"a password", []string{"--set", "config.mongodb.password=hunter2"}, "password"},
		{"a connection string", []string{"--set", "config.uri=mongodb://h"}, "uri"},
		{"a secret option of MongoDB", []string{"--set", "config.mongodb.options.proxyPassword=hunter2"}, "proxyPassword"},
		{"API keys", []string{"--set", "config.auth.apiKeys=x"}, "apiKeys"},
		{"handle keys", []string{"--set", "config.handle.keys=x"}, "handle"},
		{"an idempotency key", []string{"--set", "config.idempotency.key=x"}, "idempotency"},
		{"an address", []string{"--set", "config.grpc.address=:1"}, "address"},
		{"the address of replicas", []string{"--set", "config.replica.address=:1"}, "replica"},
		{"the drain", []string{"--set", "config.drain.timeout=1h"}, "drain"},
		{"plain text in the file", []string{"--set", "config.allowPlaintext=true"}, "allowPlaintext"},
		{"a policy's file", []string{"--set", "config.policy.file=x"}, "file"},
		{"API keys' file", []string{"--set", "config.auth.apiKeysFile=x"}, "apiKeysFile"},
		{"a name in upper case", []string{"--set", "nameOverride=Mooring"}, "/nameOverride"},
		{"a full name in upper case", []string{"--set", "fullnameOverride=Mooring"}, "/fullnameOverride"},
		{"a name with a digit first", []string{"--set", "fullnameOverride=1mooring"}, "/fullnameOverride"},
		{"equal ports", []string{"--set", "service.grpcPort=8080"}, "service.restPort"},
		{"a checksum of one's own", []string{"--set-string", `podAnnotations.checksum/config=x`}, "checksum/config"},
		{"a selector's label", []string{"--set", `podLabels.app\.kubernetes\.io/name=x`}, "app.kubernetes.io/name"},
		{"another selector's label", []string{"--set", `podLabels.app\.kubernetes\.io/instance=x`}, "app.kubernetes.io/instance"},
		{"an Ingress without hosts", []string{"--set", "ingress.rest.enabled=true"}, "/ingress/rest/hosts"},
		{"a route without a Gateway", []string{"--set", "httpRoute.enabled=true"}, "/httpRoute/parentRefs"},
		{"a route in plain text without names", []string{"--set", "httpRoute.enabled=true,httpRoute.parentRefs[0].name=g"}, "httpRoute.hostnames"},
		{"more replicas than the most", []string{"--set", "autoscaling.enabled=true,autoscaling.minReplicas=11"}, "autoscaling.maxReplicas"},
		{"a monitor without metrics", []string{"--set", "metrics.enabled=false,metrics.serviceMonitor.enabled=true"}, "metrics.serviceMonitor"},
		{"a monitor that the policy keeps out", []string{"--set", "networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true"}, "networkPolicy.metrics"},
		{"a limit that is not a quantity", []string{"--set", "resources.limits.memory=lots"}, "resources.limits.memory"},
		{"no pause", []string{"--set", "shutdown.preStopSeconds=0"}, "/shutdown/preStopSeconds"},
	} {
		t.Run(row.name, func(t *testing.T) {
			args := row.args
			if row.name != "no image" {
				args = append([]string{"--set", demanded}, args...)
			}
			out, err := helm(append([]string{"template", "test", "mooring"}, args...)...).
				CombinedOutput()
			if err == nil || !strings.Contains(string(out), row.want) {
				t.Errorf("helm template %q: %v, %s; want a refusal that names %s", row.args, err,
					out, row.want)
			}
		})
	}
}

// TestRendered sets a value and looks at what it becomes. A path is kind, then keys and indices,
// separated by "|".
func TestRendered(t *testing.T) {
	needHelm(t)
	const pod = "Deployment|spec|template|spec|"
	const box = pod + "containers|0|"
	for _, row := range []struct {
		name, set string
		want      map[string]any // nil: there is no such thing
	}{
		{"the defaults", "", map[string]any{
			box + "image":                             "r:0.1.0",
			box + "lifecycle|preStop|sleep":           map[string]any{"seconds": 15.0},
			pod + "terminationGracePeriodSeconds":     52.0,
			box + "env|1":                             map[string]any{"name": "GOMEMLIMIT", "value": "483183820"}, // 90% of 512 MiB
			box + "ports|3":                           map[string]any{"name": "admin", "containerPort": 27082.0},
			pod + "serviceAccountName":                "test-mooring",
			pod + "automountServiceAccountToken":      false,
			pod + "priorityClassName":                 nil,
			"Deployment|spec|replicas":                2.0,
			"PodDisruptionBudget|spec|maxUnavailable": 1.0,
			"Deployment|spec|strategy|rollingUpdate":  map[string]any{"maxUnavailable": 0.0, "maxSurge": 1.0},
			pod + "affinity|podAntiAffinity|preferredDuringSchedulingIgnoredDuringExecution|0|podAffinityTerm|topologyKey": "kubernetes.io/hostname",
			pod + "topologySpreadConstraints|0|labelSelector|matchLabels":                                                  map[string]any{"app.kubernetes.io/name": "mooring", "app.kubernetes.io/instance": "test"},
			"Service test-mooring-peers|spec|ports|0|appProtocol":                                                          "tls",
			"Service test-mooring|spec|ports|0|appProtocol":                                                                "kubernetes.io/h2c",
			"Service test-mooring|spec|ports|1|appProtocol":                                                                "http",
			"ServiceAccount|metadata|name":                                                                                 "test-mooring",
			"HorizontalPodAutoscaler":                                                                                      nil,
			"NetworkPolicy":                                                                                                nil,
			"Ingress":                                                                                                      nil,
			"ServiceMonitor":                                                                                               nil,
		}},
		{"TLS", "tlsSecret.name=x,metrics.enabled=false", map[string]any{
			"Service test-mooring|spec|ports|0|appProtocol": "https",
			"Service test-mooring|spec|ports|1|appProtocol": "https",
			box + "readinessProbe|httpGet|scheme":           "HTTPS",
		}},
		{
			"a digest",
			"image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			map[string]any{
				box + "image": "r@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			},
		},
		{"a ServiceAccount", "serviceAccount.annotations.role=x", map[string]any{"ServiceAccount|metadata|annotations|role": "x"}},
		{"another's ServiceAccount", "serviceAccount.create=false,serviceAccount.name=x", map[string]any{"ServiceAccount": nil, pod + "serviceAccountName": "x"}},
		{"a priority", "priorityClassName=high", map[string]any{pod + "priorityClassName": "high"}},
		{"a label", "podLabels.team=x", map[string]any{"Deployment|spec|template|metadata|labels|team": "x"}},
		{"all keys of the Secret", "", map[string]any{pod + "volumes|1|secret|items": nil}},
		{
			"some keys of the Secret",
			"uriSecret.items[0].key=uri,uriSecret.items[0].path=uri,uriSecret.items[1].key=ca,uriSecret.items[1].path=ca.crt",
			map[string]any{
				pod + "volumes|1|secret|items|1": map[string]any{"key": "ca", "path": "ca.crt"},
			},
		},
		{"an environment variable", "extraEnv[0].name=A,extraEnv[0].value=b", map[string]any{box + "env|2": map[string]any{"name": "A", "value": "b"}}},
		{
			"a volume",
			"extraVolumes[0].name=x,extraVolumeMounts[0].name=x,extraVolumeMounts[0].mountPath=/x",
			map[string]any{
				pod + "volumes|4|name": "x", box + "volumeMounts|5|mountPath": "/x",
			},
		},
		{"a memory limit in Gi", "resources.limits.memory=1.5Gi", map[string]any{box + "env|1|value": "1449551462"}},
		{"a memory limit in bytes", "resources.limits.memory=1000000000", map[string]any{box + "env|1|value": "900000000"}},
		{"no memory limit", "resources.limits=null", map[string]any{box + "env|1": nil}},
		{"an autoscaler", "autoscaling.enabled=true", map[string]any{"Deployment|spec|replicas": nil, "HorizontalPodAutoscaler|spec|maxReplicas": 10.0}},
		{"a longer drain", "shutdown.drainSeconds=300", map[string]any{pod + "terminationGracePeriodSeconds": 332.0}},
		{"no metrics", "metrics.enabled=false", map[string]any{box + "ports|3": nil, "Service test-mooring-peers|spec|ports|1": nil}},
		{"an affinity of one's own", "affinity.nodeAffinity.x=y", map[string]any{pod + "affinity": map[string]any{"nodeAffinity": map[string]any{"x": "y"}}}},
		{"strict anti-affinity", "podAntiAffinity=hard", map[string]any{
			pod + "affinity|podAntiAffinity|requiredDuringSchedulingIgnoredDuringExecution|0|topologyKey": "kubernetes.io/hostname",
			"Deployment|spec|strategy|rollingUpdate":                                                      map[string]any{"maxUnavailable": 1.0, "maxSurge": 0.0},
		}},
		{
			"strict anti-affinity that an affinity replaces",
			"podAntiAffinity=hard,affinity.nodeAffinity.x=y",
			map[string]any{
				"Deployment|spec|strategy|rollingUpdate": map[string]any{
					"maxUnavailable": 0.0, "maxSurge": 1.0,
				},
			},
		},
		{"no anti-affinity", "podAntiAffinity=none", map[string]any{pod + "affinity": nil}},
		{"a long name", "fullnameOverride=" + strings.Repeat("a", 63), map[string]any{"Service " + strings.Repeat("a", 57) + "-peers|spec|clusterIP": "None"}},
		{
			"a route without names, with TLS",
			"httpRoute.enabled=true,httpRoute.parentRefs[0].name=g,tlsSecret.name=x",
			map[string]any{
				"HTTPRoute|spec|hostnames": nil, "HTTPRoute|spec|parentRefs|0|name": "g",
			},
		},
		{
			"a route without names, which the gateway knows",
			"httpRoute.enabled=true,httpRoute.parentRefs[0].name=g,config.rest.hosts={*}",
			map[string]any{
				"HTTPRoute|spec|hostnames": nil,
			},
		},
		{
			"alerts of a release that is not named mooring",
			"fullnameOverride=gateway,metrics.prometheusRule.enabled=true",
			map[string]any{
				"PrometheusRule|spec|groups|0|rules|0|alert": "MooringDown",
				"PrometheusRule|spec|groups|0|rules|0|expr":  `up{job=~".*mooring.*|gateway-peers"} == 0`,
			},
		},
		{"one Ingress", "ingress.grpc.enabled=true,ingress.grpc.hosts={h.example}", map[string]any{
			"Ingress|metadata|name": "test-mooring-grpc", "Ingress|spec|rules|0|http|paths|0|backend|service|port|name": "grpc",
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			args := []string{"--set", demanded}
			if row.set != "" {
				args = append(args, "--set", row.set)
			}
			trees := renderTrees(t, args...)
			for path, want := range row.want {
				if got := lookup(trees, path); !reflect.DeepEqual(got, want) {
					t.Errorf("%s = %v, want %v", path, got, want)
				}
			}
		})
	}
}

// TestMemoryLimitsInAFile checks that a limit may be a number, which a file has as a float.
func TestMemoryLimitsInAFile(t *testing.T) {
	needHelm(t)
	const path = "Deployment|spec|template|spec|containers|0|env|1|value"
	for limit, want := range map[string]string{
		"536870912": "483183820", `"536870912"`: "483183820", "5.36870912e+08": "483183820",
		"512Mi": "483183820",
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte("resources: {limits: {memory: "+limit+"}}"),
			0o600); err != nil {
			t.Fatal(err)
		}
		if got := lookup(renderTrees(t, "--set", demanded, "-f", file), path); got != want {
			t.Errorf("a limit of %s gives GOMEMLIMIT=%v, want %s", limit, got, want)
		}
	}
}

// TestClientCertificatesRequired checks that the option reaches the gateway beside what the chart
// sets of TLS, and that helm test makes no connection that it refuses.
func TestClientCertificatesRequired(t *testing.T) {
	needHelm(t)
	objects := render(t, "--set", demanded+",tlsSecret.name=x,tlsSecret.clientAuthorityKey=ca,"+
		"config.tls.clientCertificates=required")
	var cfg struct{ TLS map[string]string }
	if err := yaml.Unmarshal([]byte(one(t, objects, "ConfigMap").Data["mooring.yaml"]),
		&cfg); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"certificateFile":     "/etc/mooring/tls/tls.crt",
		"keyFile":             "/etc/mooring/tls/tls.key",
		"clientAuthorityFile": "/etc/mooring/tls/ca",
		"clientCertificates":  "required",
	}
	if !maps.Equal(cfg.TLS, want) {
		t.Errorf("tls = %v, want %v", cfg.TLS, want)
	}
	if c := one(t, objects, "Pod").Spec.Containers; len(c) != 1 || c[0].Name != "check" {
		t.Errorf("helm test runs %+v", c)
	}
}

// TestRoutesGiveHosts checks that REST answers for the names by which routes lead to it.
func TestRoutesGiveHosts(t *testing.T) {
	needHelm(t)
	for file, want := range map[string]bool{
		"ingress": true, "gateway-api": true, "minimal": false,
	} {
		config := one(t, render(t, "-f", "mooring/ci/"+file+".yaml"),
			"ConfigMap").Data["mooring.yaml"]
		var cfg struct{ REST struct{ Hosts []string } }
		if err := yaml.Unmarshal([]byte(config), &cfg); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(cfg.REST.Hosts, " "), "api.example"); got != want ||
			len(cfg.REST.Hosts) < 4 {
			t.Errorf("%s gives rest.hosts %q", file, cfg.REST.Hosts)
		}
	}
}

// TestHostsAsText checks that the hosts may be one text, as for any list of options.
func TestHostsAsText(t *testing.T) {
	needHelm(t)
	var got [2]any
	for i, hosts := range []string{"{a.example,b.example}", `a.example\, b.example`} {
		config := one(t, render(t, "--set", demanded+",config.rest.hosts="+hosts),
			"ConfigMap").Data["mooring.yaml"]
		var cfg struct{ REST struct{ Hosts []string } }
		if err := yaml.Unmarshal([]byte(config), &cfg); err != nil {
			t.Fatal(err)
		}
		if len(cfg.REST.Hosts) != 6 {
			t.Errorf("config.rest.hosts=%s gives %q", hosts, cfg.REST.Hosts)
		}
		got[i] = config
	}
	if got[0] != got[1] {
		t.Errorf("a list gives %s, and a text %s", got[0], got[1])
	}
}

// TestChecksum checks that another configuration is another Pod.
func TestChecksum(t *testing.T) {
	needHelm(t)
	const path = "Deployment|spec|template|metadata|annotations|checksum/config"
	one := lookup(renderTrees(t, "--set", demanded), path)
	two := lookup(renderTrees(t, "--set", demanded+",config.log.level=debug"), path)
	if one == nil || one == two {
		t.Errorf("the checksums of two configurations are %v and %v", one, two)
	}
}

// TestNotes checks that the notes say how to reach the release.
func TestNotes(t *testing.T) {
	needHelm(t)
	for set, want := range map[string]string{
		demanded: "Clients need NO credential",
		demanded + ",tlsSecret.name=x,apiKeysSecret.name=x,allowUnauthenticated=false":                              "curl -k https://127.0.0.1:8080/v1/databases -H",
		demanded + ",service.type=LoadBalancer":                                                                     "loadBalancer.ingress",
		demanded + ",service.type=NodePort":                                                                         "nodePort",
		demanded + ",httpRoute.enabled=true,httpRoute.parentRefs[0].name=g,httpRoute.hostnames={api.example}":       "rest by HTTPRoute: api.example",
		demanded + ",httpRoute.enabled=true,httpRoute.parentRefs[0].name=g,config.rest.hosts={a.example,b.example}": "names of its Gateway's listener, if they are among\n    a.example b.example (config.rest.hosts)",
		demanded + ",httpRoute.enabled=true,httpRoute.parentRefs[0].name=g,tlsSecret.name=x":                        "rest by HTTPRoute: the names of its Gateway's listener\n",
		demanded + ",ingress.rest.enabled=true,ingress.rest.hosts={api.example}":                                    "rest by Ingress: api.example",
	} {
		out, err := helm("install", "test", "mooring", "--dry-run=client", "--set", set).
			CombinedOutput()
		_, notes, _ := strings.Cut(string(out), "NOTES:")
		if err != nil || !strings.Contains(notes, want) ||
			!strings.Contains(notes, "port-forward service/test-mooring 8080 27080") {
			t.Errorf("the notes with %s are %s, %v; want %q", set, notes, err, want)
		}
	}
}

// TestValuesAreDocumented checks that each value has a comment in helm-docs's form, or its group's
// values have.
func TestValuesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("mooring/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	documented(t, doc.Content[0], "")
}

func documented(t *testing.T, m *yaml.Node, path string) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		switch {
		case regexp.MustCompile(`(?m)^# -- `).MatchString(key.HeadComment):
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			documented(t, value, path+key.Value+".")
		default:
			t.Errorf("the value %s%s has no comment that begins with # --", path, key.Value)
		}
	}
}

// TestEightFiles renders each file of values.
func TestEightFiles(t *testing.T) {
	needHelm(t)
	files, err := filepath.Glob("mooring/ci/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("there are %d files of values, %v", len(files), err)
	}
	for _, file := range files {
		if out, err := helm("lint", "--strict", "mooring", "-f", file).
			CombinedOutput(); err != nil {
			t.Errorf("helm lint with %s: %v\n%s", file, err, out)
		}
		render(t, "-f", file)
	}
}

// renderTrees renders the chart, and returns its objects as JSON has them.
func renderTrees(t *testing.T, args ...string) []map[string]any {
	t.Helper()
	cmd := helm(append([]string{"template", "test", "mooring"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, &stderr)
	}
	var trees []map[string]any
	for dec := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var tree any
		err := dec.Decode(&tree)
		if errors.Is(err, io.EOF) {
			return trees
		}
		text, jsonErr := json.Marshal(tree)
		var o map[string]any
		if err := errors.Join(err, jsonErr, json.Unmarshal(text, &o)); err != nil {
			t.Fatalf("helm template gives what cannot be read: %v", err)
		}
		trees = append(trees, o)
	}
}

// lookup follows a path from the kind of an object, or from its kind and name, to a value.
func lookup(trees []map[string]any, path string) any {
	words := strings.Split(path, "|")
	for _, tree := range trees {
		name, _ := tree["metadata"].(map[string]any)
		if kind := fmt.Sprint(tree["kind"]); kind != words[0] &&
			kind+" "+fmt.Sprint(name["name"]) != words[0] {
			continue
		}
		var at any = tree
		for _, word := range words[1:] {
			switch v := at.(type) {
			case map[string]any:
				at = v[word]
			case []any:
				var i int
				if _, err := fmt.Sscan(word, &i); err != nil || i >= len(v) {
					return nil
				}
				at = v[i]
			default:
				return nil
			}
		}
		return at
	}
	return nil
}
