package recipes_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// stubs stands for mongosh: a server that is a member of no replica set at first, and becomes the
// primary later.
const stubs = `
const { readFileSync } = require('node:fs');
const vm = require('node:vm');
const stored = [];
let state = 'new';
const quit = (code) => { throw Object.assign(new Error('quit'), { code }); };
const context = vm.createContext({
  quit,
  rs: {
    status() {
      if (state === 'new') throw Object.assign(new Error('x'), { codeName: 'NotYetInitialized' });
      if (state === 'broken') throw new Error('broken');
    },
    initiate(config) { state = 'secondary'; console.log('initiated', JSON.stringify(config)); },
  },
  db: {
    hello: () => ({ isWritablePrimary: state === 'primary' }),
    orders: {
      countDocuments: () => stored.length,
      insertMany: (documents) => stored.push(...documents),
    },
  },
});
const run = (file) => {
  try {
    vm.runInContext(readFileSync(file, 'utf8'), context);
    return 0;
  } catch (err) {
    return err.code ?? err.message;
  }
};
const script = process.argv[2] + '/replica-set.js';
console.log('new:', run(script), 'again:', run(script));
state = 'primary';
console.log('primary:', run(script));
state = 'broken';
console.log('broken:', run(script));
const sample = process.argv[2] + '/sample.js';
const fresh = () => { run(sample); return new Set(stored.map((order) => order._id)).size; };
console.log('orders:', fresh(), fresh(), stored.length, stored[249].placed.toISOString());
`

// TestCompose reads the file for docker compose as that does, checks the options of the gateway in
// it, and runs the scripts. There is no daemon here to start it.
func TestCompose(t *testing.T) {
	deployment := uri(t)
	root, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "deploy", "compose")
	options, err := cli.NewProjectOptions([]string{filepath.Join(dir, "compose.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gateway := project.Services["mooring"]
	checkFiles(t, project)
	for _, port := range gateway.Ports {
		if port.HostIP != "127.0.0.1" {
			t.Errorf("the port %d is open to other machines", port.Target)
		}
	}
	t.Run("options", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), suite.Gateway(t), "config", "check")
		// As deploy/Dockerfile has them.
		cmd.Env = []string{"MOORING_GRPC_ADDRESS=:27080", "MOORING_REST_ADDRESS=:8080"}
		for name, value := range gateway.Environment {
			cmd.Env = append(cmd.Env, name+"="+*value)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("config check: %v\n%s", err, out)
		}
	})
	t.Run("health", func(t *testing.T) {
		g := suite.Start(t, deployment)
		args := slices.Concat(gateway.HealthCheck.Test[2:], []string{"--rest", g.REST})
		out, err := exec.CommandContext(t.Context(), suite.Gateway(t), args...).CombinedOutput()
		if err != nil {
			t.Errorf("mooring %v: %v\n%s", args, err, out)
		}
	})
	t.Run("scripts", func(t *testing.T) {
		if _, err := exec.LookPath("node"); err != nil {
			t.Skip("node is not installed")
		}
		cmd := exec.CommandContext(t.Context(), "node", "-e", stubs, "--", "-", dir)
		out, err := cmd.CombinedOutput()
		want := `initiated {"_id":"rs0","members":[{"_id":0,"host":"mongo:27017"}]}
new: 1 again: 1
primary: 0
broken: broken
orders: 250 250 250 2026-11-11T18:00:00.000Z
`
		if err != nil || string(out) != want {
			t.Errorf("%v\n%s\nwant\n%s", err, out, want)
		}
	})
}

// checkFiles checks that the files and folders that services name exist.
func checkFiles(t *testing.T, project *types.Project) {
	t.Helper()
	for name, service := range project.Services {
		for _, volume := range service.Volumes {
			if volume.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(volume.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !strings.Contains(strings.Join(append(service.Command, healthTest(service)...), " "),
				volume.Target) {
				t.Errorf("%s mounts %s, and does not use it", name, volume.Target)
			}
		}
		if build := service.Build; build != nil {
			if _, err := os.Stat(filepath.Join(build.Context, build.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func healthTest(service types.ServiceConfig) []string {
	if service.HealthCheck == nil {
		return nil
	}
	return service.HealthCheck.Test
}
