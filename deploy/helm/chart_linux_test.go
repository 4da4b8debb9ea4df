// Package helm_test renders the chart and runs the gateway as its Pod would: with the image's entry
// point and environment, the container's arguments, no files but those that it mounts, as the user
// that it names, in a root of its own.
package helm_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// gate names the environment variable that lets these tests run. They build Helm, which takes
// minutes, and the gateway.
const gate = "MOORING_TEST_HELM"

// What the templates give, as far as a container's start depends on it.
type (
	object struct {
		Kind     string
		Metadata struct{ Name string }
		Data     map[string]string // of a ConfigMap
		Spec     struct {
			Template struct{ Spec pod }
			service
			Ingress    []ingress   // of a NetworkPolicy
			Containers []container // of a Pod
		}
	}
	service struct {
		ClusterIP                string
		PublishNotReadyAddresses bool
		Selector                 map[string]any // of a Deployment it is nested
		Ports                    []struct {
			Name, TargetPort string
			Port             int
		}
	}
	ingress struct {
		Ports []struct{ Port string }
		From  []struct {
			PodSelector *struct{ MatchLabels map[string]any }
		}
	}
	pod struct {
		TerminationGracePeriodSeconds int
		EnableServiceLinks            *bool
		SecurityContext               struct {
			RunAsUser, RunAsGroup uint32
			FSGroup               int
		}
		Containers []container
		Volumes    []volume
	}
	container struct {
		Name          string
		Command, Args []string
		EnvFrom       []any
		Env           []struct {
			Name, Value string
			ValueFrom   struct{ FieldRef struct{ FieldPath string } }
		}
		Ports                                       []port
		StartupProbe, LivenessProbe, ReadinessProbe struct {
			HTTPGet probe
		}
		Lifecycle struct {
			PreStop struct{ Sleep struct{ Seconds int } }
		}
		VolumeMounts []struct {
			Name      string
			MountPath string
			SubPath   string
		}
	}
	port struct {
		Name          string
		ContainerPort int
	}
	probe  struct{ Path, Port, Scheme string }
	volume struct {
		Name      string
		ConfigMap *struct{ Name string }
		EmptyDir  *struct{}
		Secret    *struct {
			SecretName  string
			DefaultMode os.FileMode
			Items       []struct{ Key, Path string }
		}
	}
)

// apiKeyLine is the line of an API key that does not exist.
const apiKeyLine = "shop Y2hhcnQx " +
	"AAAAAAAAAAAAAAAAAAAAAA.AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"

// secrets are what the cluster would hold: Secrets by name, their keys, the text.
type secrets map[string]map[string]string

func TestPodRuns(t *testing.T) {
	needHelm(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root: the gateway runs in a root directory of its own")
	}
	binary := build(t)
	crt, key := certificate(t)
	for _, row := range []struct {
		name    string
		args    []string
		secrets func(s *fakemongo.Server, keys string) secrets
	}{
		{
			"only what the chart demands",
			[]string{"--set", demanded},
			func(s *fakemongo.Server, keys string) secrets {
				return secrets{"a": {"uri": s.URI()}, "b": {"keys": keys}, "c": {"key": keys}}
			},
		},
		{
			// Only with the authority's certificate beside the connection string can the gateway
			// reach a server that it issued a certificate for.
			"a private authority for MongoDB",
			[]string{"-f", "mooring/ci/private-ca.yaml", "--set", "uriSecret.usernameKey=,uriSecret.passwordKey="},
			func(s *fakemongo.Server, keys string) secrets {
				ca := certtest.Authority(t, certtest.ECDSA)
				own := ca.Issue(t, "db.example", func(c *x509.Certificate) {
					c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
				})
				s.UseTLS(&tls.Config{Certificates: []tls.Certificate{own.TLS(nil)}})
				return secrets{
					"mooring-uri": {
						"uri": s.URI(), "username": "", "password": "",
						"ca.crt": string(pem.EncodeToMemory(ca.CertificateBlock())),
					},
					"mooring-handle-keys": {"keys": keys}, "mooring-idempotency-key": {"key": keys},
					"mooring-api-keys": {"api-keys": apiKeyLine},
				}
			},
		},
		{
			"everything",
			[]string{"-f", "mooring/ci/everything.yaml"},
			func(s *fakemongo.Server, keys string) secrets {
				return secrets{
					"mooring-uri":         {"connection-string": s.URI()},
					"mooring-handle-keys": {"keys": keys}, "mooring-idempotency-key": {"key": keys},
					"mooring-tls":      {"tls.crt": crt, "tls.key": key, "ca.crt": crt},
					"mooring-api-keys": {"api-keys": apiKeyLine},
				}
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := fakemongo.NewTCPServer(t, nil)
			keys := base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef")) +
				"\n"
			runPod(t, binary, render(t, row.args...), row.secrets(server, keys))
		})
	}
}

// TestReplicasFindEachOther checks that the configuration names the headless Service, which leads
// to the port that the container has, and that only replicas may connect to it.
func TestReplicasFindEachOther(t *testing.T) {
	needHelm(t)
	objects := render(t, "-f", "mooring/ci/everything.yaml")
	var peers, policy object
	for _, o := range objects {
		switch {
		case o.Kind == "Service" && o.Spec.ClusterIP == "None":
			peers = o
		case o.Kind == "NetworkPolicy":
			policy = o
		}
	}
	var cfg struct {
		Replica struct {
			Address string
			Peers   []string
		}
	}
	if err := yaml.Unmarshal([]byte(one(t, objects, "ConfigMap").Data["mooring.yaml"]),
		&cfg); err != nil {
		t.Fatal(err)
	}
	if len(peers.Spec.Ports) != 2 || peers.Spec.Ports[0].Name != "replica" ||
		!peers.Spec.PublishNotReadyAddresses || len(peers.Spec.Selector) == 0 {
		t.Fatalf("the headless Service is %+v", peers)
	}
	p := peers.Spec.Ports[0]
	if want := fmt.Sprintf("%s:%d", peers.Metadata.Name, p.Port); len(cfg.Replica.Peers) != 1 ||
		cfg.Replica.Peers[0] != want {
		t.Errorf("replica.peers = %q, want %s", cfg.Replica.Peers, want)
	}
	container := one(t, objects, "Deployment").Spec.Template.Spec.Containers[0]
	if i := slices.IndexFunc(container.Ports, func(c port) bool {
		return c.Name == p.TargetPort
	}); i < 0 ||
		fmt.Sprintf(":%d", container.Ports[i].ContainerPort) != cfg.Replica.Address ||
		container.Ports[i].ContainerPort != p.Port {
		t.Errorf("the Service leads to port %q, the gateway listens at %s, the container has %+v",
			p.TargetPort, cfg.Replica.Address, container.Ports)
	}
	for _, rule := range policy.Spec.Ingress {
		for _, allowed := range rule.Ports {
			if allowed.Port == p.TargetPort &&
				(len(rule.From) != 1 || rule.From[0].PodSelector == nil ||
					!maps.Equal(rule.From[0].PodSelector.MatchLabels, peers.Spec.Selector)) {
				t.Errorf("the NetworkPolicy lets %+v reach the port of replicas", rule.From)
			}
		}
	}
	if len(policy.Spec.Ingress) != 3 {
		t.Errorf("the NetworkPolicy has %d rules, want one for clients, replicas and metrics each",
			len(policy.Spec.Ingress))
	}
}

// TestConfigurationOfARunningPod checks that no change of the configuration reaches a running Pod,
// which kubelets do to what is mounted as a directory, and that one of the policy does. A container
// that starts again in an old Pod gets the new configuration, and must find the policy, too: the
// path is the same in each release of the chart, and there without a policy.
func TestConfigurationOfARunningPod(t *testing.T) {
	needHelm(t)
	const policy = "/etc/mooring/config/policy.cedar"
	for file, want := range map[string]string{"everything": policy, "minimal": ""} {
		objects := render(t, "-f", "mooring/ci/"+file+".yaml")
		var cfg struct{ Policy struct{ File string } }
		if err := yaml.Unmarshal([]byte(one(t, objects, "ConfigMap").Data["mooring.yaml"]),
			&cfg); err != nil {
			t.Fatal(err)
		}
		if cfg.Policy.File != want {
			t.Errorf("%s: policy.file is %q, want %q", file, cfg.Policy.File, want)
		}
		spec := one(t, objects, "Deployment").Spec.Template.Spec
		c := spec.Containers[0]
		if len(c.Args) != 3 || c.Args[1] != "--config" {
			t.Fatalf("the container's arguments are %q", c.Args)
		}
		subPaths := map[string]string{}
		for _, m := range c.VolumeMounts {
			i := slices.IndexFunc(spec.Volumes, func(v volume) bool { return v.Name == m.Name })
			if spec.Volumes[i].ConfigMap != nil {
				subPaths[m.MountPath] = m.SubPath
			}
		}
		mounts := map[string]string{c.Args[2]: "mooring.yaml", filepath.Dir(policy): ""}
		if !maps.Equal(subPaths, mounts) {
			t.Errorf("%s: the ConfigMap is mounted as %q, want %q", file, subPaths, mounts)
		}
	}
}

// TestProbes checks that the kubelet asks a port whose connections are not counted with those of
// clients, if there is one.
func TestProbes(t *testing.T) {
	needHelm(t)
	const secure = ",tlsSecret.name=tls"
	for _, row := range []struct {
		name, more, port, scheme string
	}{
		{"plain text", "", "admin", "HTTP"},
		{"TLS", secure, "admin", "HTTP"},
		{"no metrics", ",metrics.enabled=false", "rest", "HTTP"},
		{"no metrics, TLS", secure + ",metrics.enabled=false", "rest", "HTTPS"},
	} {
		objects := render(t, "--set", demanded+row.more)
		c := one(t, objects, "Deployment").Spec.Template.Spec.Containers[0]
		got := []probe{c.StartupProbe.HTTPGet, c.LivenessProbe.HTTPGet, c.ReadinessProbe.HTTPGet}
		want := []probe{
			{"/healthz", row.port, row.scheme},
			{"/healthz", row.port, row.scheme},
			{"/readyz", row.port, row.scheme},
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the probes are %v, want %v", row.name, got, want)
		}
	}
}

func runPod(t *testing.T, binary string, objects []object, s secrets) {
	spec := one(t, objects, "Deployment").Spec.Template.Spec
	if spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
		t.Error("enableServiceLinks is not false: Services would put variables into the container")
	}
	c := spec.Containers[0]
	if len(spec.Containers) != 1 || c.EnvFrom != nil || c.Command != nil {
		t.Fatalf("the Pod has what this test does not understand yet: %+v", spec.Containers)
	}
	img := readDockerfile(t)
	if want := fmt.Sprintf("%d:%d", spec.SecurityContext.RunAsUser,
		spec.SecurityContext.RunAsGroup); img.user != want {
		t.Errorf("the image runs as %s, the Pod as %s", img.user, want)
	}

	root := t.TempDir()
	copyFile(t, binary, filepath.Join(root, img.entrypoint[0]), 0o755)
	mount(t, root, spec, objects, s)

	for _, p := range c.Ports {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", p.ContainerPort))
		if err != nil {
			t.Skipf("port %d, which the Pod uses, is taken on this machine: %v", p.ContainerPort,
				err)
		}
		_ = l.Close()
	}
	readOnly(t, root)
	var log bytes.Buffer
	cmd := exec.Command(img.entrypoint[0], append(img.entrypoint[1:], c.Args...)...)
	cmd.Path = img.entrypoint[0]
	cmd.Err = nil // the path is looked for in the new root only
	cmd.Env, cmd.Dir = append([]string{}, img.env...), "/"
	for _, v := range c.Env {
		switch {
		case v.Value != "":
			cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
		case v.ValueFrom.FieldRef.FieldPath == "status.podIP":
			cmd.Env = append(cmd.Env, v.Name+"=127.0.0.1")
		default:
			t.Fatalf("the container has the variable %+v, which this test does not understand yet",
				v)
		}
	}
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: root,
		Credential: &syscall.Credential{
			Uid: spec.SecurityContext.RunAsUser, Gid: spec.SecurityContext.RunAsGroup,
			Groups: []uint32{uint32(spec.SecurityContext.FSGroup)},
		},
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start: %v", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	running := true
	defer func() {
		if running {
			_ = cmd.Process.Kill() // the test has failed already
			<-exited               //nolint:errcheck // killed
		}
		if t.Failed() {
			t.Logf("the gateway said:\n%s", &log)
		}
	}()

	for name, p := range map[string]probe{
		"startup": c.StartupProbe.HTTPGet, "liveness": c.LivenessProbe.HTTPGet, "readiness": c.ReadinessProbe.HTTPGet,
		"metrics": {"/metrics", "admin", "HTTP"},
	} {
		select {
		case err := <-exited:
			running = false
			t.Fatalf("the gateway ended: %v", err)
		case err := <-succeed(t, p.url(t, c.Ports)):
			if err != nil {
				t.Errorf("%s probe: %v", name, err)
			}
		}
	}

	askService(t, cmd, objects, c.Ports)

	if c.Lifecycle.PreStop.Sleep.Seconds < 15 {
		t.Errorf("preStop waits %d s only", c.Lifecycle.PreStop.Sleep.Seconds)
	}
	grace := time.Duration(
		spec.TerminationGracePeriodSeconds-c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-exited:
		running = false
		if err != nil {
			t.Errorf("after SIGTERM: %v, want exit code 0", err)
		}
	case <-time.After(grace):
		t.Errorf("still there %s after SIGTERM: the kubelet would kill it", grace)
	}
	if strings.Contains(log.String(), "no effect") || strings.Contains(log.String(), `"WARN"`) {
		t.Error("the gateway warns of what the chart gives it")
	}
}

// askService runs the container of `helm test` that calls the Service, as the gateway runs. Instead
// of the Service it calls the ports that the Service leads to.
func askService(t *testing.T, gateway *exec.Cmd, objects []object, ports []port) {
	t.Helper()
	test := one(t, objects, "Pod").Spec.Containers
	i := slices.IndexFunc(test, func(c container) bool { return c.Name == "health" })
	if i < 0 {
		t.Fatalf("the Pod of helm test has no container that calls the Service: %+v", test)
	}
	addresses := map[string]string{}
	for _, o := range objects {
		if o.Kind != "Service" || o.Spec.ClusterIP == "None" {
			continue
		}
		for _, p := range o.Spec.Ports {
			k := slices.IndexFunc(ports, func(c port) bool { return c.Name == p.TargetPort })
			if k < 0 {
				t.Fatalf("the Service leads to port %q, which the container does not have",
					p.TargetPort)
			}
			addresses[fmt.Sprintf("//%s:%d", o.Metadata.Name,
				p.Port)] = fmt.Sprintf("//127.0.0.1:%d", ports[k].ContainerPort)
		}
	}
	replaced := 0
	var args []string
	for _, arg := range test[i].Args {
		for from, to := range addresses {
			if strings.HasSuffix(arg, from) {
				arg = strings.TrimSuffix(arg, from) + to
				replaced++
			}
		}
		args = append(args, arg)
	}
	cmd := exec.Command(gateway.Args[0], args...)
	cmd.Path, cmd.Err = gateway.Path, nil
	cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{}, gateway.Dir, gateway.SysProcAttr
	if out, err := cmd.CombinedOutput(); err != nil || replaced != 2 ||
		strings.Count(string(out), "is ready") != 2 {
		t.Errorf("%q, which names the Service %d times: %v\n%s", args, replaced, err, out)
	}
}

// readOnly makes the directory read-only until the end of the test, as readOnlyRootFilesystem does.
func readOnly(t *testing.T, root string) {
	t.Helper()
	err := syscall.Mount(root, root, "", syscall.MS_BIND|syscall.MS_REC, "")
	if err != nil {
		t.Logf("the root stays writable: this process may not mount (%v)", err)
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(root, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mount("", root, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY,
		""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "x"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("writing below the root gives %v", err)
	}
}

// mount puts the Pod's volumes below root as the kubelet would. The test fails if a Secret or a key
// is missing.
func mount(t *testing.T, root string, spec pod, objects []object, s secrets) {
	t.Helper()
	for _, m := range spec.Containers[0].VolumeMounts {
		var v volume
		for _, candidate := range spec.Volumes {
			if candidate.Name == m.Name {
				v = candidate
			}
		}
		dir := filepath.Join(root, m.MountPath)
		if m.SubPath != "" {
			dir = filepath.Dir(dir)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write := func(name, text string, mode os.FileMode) {
			path := filepath.Join(dir, name)
			switch m.SubPath {
			case "":
			case name:
				path = filepath.Join(root, m.MountPath)
			default:
				return
			}
			err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode),
				os.Chown(path, 0, spec.SecurityContext.FSGroup))
			if err != nil {
				t.Fatal(err)
			}
		}
		switch {
		case v.ConfigMap != nil:
			cm := one(t, objects, "ConfigMap")
			if cm.Metadata.Name != v.ConfigMap.Name {
				t.Fatalf("volume %s is of ConfigMap %q, which is not there", m.Name,
					v.ConfigMap.Name)
			}
			for name, text := range cm.Data {
				write(name, text, 0o644)
			}
		case v.EmptyDir != nil:
		case v.Secret != nil && v.Secret.Items == nil:
			for key, text := range s[v.Secret.SecretName] {
				write(key, text, v.Secret.DefaultMode)
			}
		case v.Secret != nil:
			for _, item := range v.Secret.Items {
				text, ok := s[v.Secret.SecretName][item.Key]
				if !ok {
					t.Fatalf("volume %s wants key %q of Secret %q, which is not there", m.Name,
						item.Key, v.Secret.SecretName)
				}
				write(item.Path, text, v.Secret.DefaultMode)
			}
		default:
			t.Fatalf("volume %q is of a kind that this test does not know, or is missing", m.Name)
		}
	}
}

// url is where a probe asks, with the port's name looked up.
func (p probe) url(t *testing.T, ports []port) string {
	t.Helper()
	for _, candidate := range ports {
		if candidate.Name == p.Port {
			return fmt.Sprintf("%s://127.0.0.1:%d%s", strings.ToLower(p.Scheme), candidate.ContainerPort, p.Path)
		}
	}
	t.Fatalf("a probe asks port %q, which the container does not have", p.Port)
	return ""
}

// succeed asks until the answer is 200, for half a minute.
func succeed(t *testing.T, url string) <-chan error {
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the kubelet does not verify either
		DisableKeepAlives: true,
	}}
	result := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	go func() {
		defer cancel()
		again := time.NewTicker(50 * time.Millisecond)
		defer again.Stop()
		for {
			err := ask(ctx, c, url)
			if err == nil || ctx.Err() != nil {
				result <- err
				return
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				result <- err
				return
			}
		}
	}()
	return result
}

func ask(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return nil
}

// image is what the Dockerfile says of the last stage.
type image struct {
	entrypoint, env []string
	user            string
}

func readDockerfile(t *testing.T) image {
	t.Helper()
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var img image
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "FROM":
			img = image{}
		case "ENV":
			img.env = append(img.env, strings.Fields(rest)...)
		case "USER":
			img.user = rest
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &img.entrypoint); err != nil {
				t.Fatalf("ENTRYPOINT %s: %v", rest, err)
			}
		}
	}
	if len(img.entrypoint) == 0 {
		t.Fatal("the Dockerfile has no ENTRYPOINT")
	}
	return img
}

func needHelm(t *testing.T) {
	t.Helper()
	if os.Getenv(gate) == "" {
		t.Skipf("set %s=1 to build Helm from tools/helm and run this", gate)
	}
}

// helmBinary builds Helm, if that was not done before, and returns where it is.
var helmBinary = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-modfile=../../tools/helm/go.mod", "-n", "helm").
		Output()
	return strings.TrimSpace(string(out)), err
})

func helm(args ...string) *exec.Cmd {
	path, err := helmBinary()
	cmd := exec.Command(path, args...)
	cmd.Err = errors.Join(cmd.Err, err)
	return cmd
}

func render(t *testing.T, args ...string) []object {
	t.Helper()
	cmd := helm(append([]string{"template", "test", "mooring"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, &stderr)
	}
	var objects []object
	for dec := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var tree any
		err := dec.Decode(&tree)
		if errors.Is(err, io.EOF) {
			return objects
		}
		// Kubernetes, too, reads YAML as JSON.
		text, jsonErr := json.Marshal(tree)
		var o object
		if err := errors.Join(err, jsonErr, json.Unmarshal(text, &o)); err != nil {
			t.Fatalf("helm template gives what cannot be read: %v", err)
		}
		objects = append(objects, o)
	}
}

func one(t *testing.T, objects []object, kind string) object {
	t.Helper()
	var found []object
	for _, o := range objects {
		if o.Kind == kind {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the chart has %d objects of kind %s, want 1", len(found), kind)
	}
	return found[0]
}

// build makes the binary as the Dockerfile does.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mooring")
	cmd := exec.Command("tools/build.sh", path)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// certificate returns a self-signed certificate and its key, as the PEM texts that a Secret of type
// kubernetes.io/tls holds.
func certificate(t *testing.T) (crt, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return text("CERTIFICATE", der), text("PRIVATE KEY", keyDER)
}
