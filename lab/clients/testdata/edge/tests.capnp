# The tests of the TypeScript client in workerd, in a copy of clients/typescript.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "tests", worker = .tests),
    (name = "internet", network = (allow = ["private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "tests")],
);

const tests :Workerd.Worker = (
  modules = [
    (name = "worker.js", esModule = embed "test/worker.js"),
    (name = "run.js", esModule = embed "test/run.js"),
    (name = "suite.js", esModule = embed "test/suite.js"),
    (name = "mooring-client", esModule = embed "index.js"),
    (name = "operations.js", esModule = embed "operations.js"),
  ],
  bindings = [
    (name = "MOORING_REST", fromEnvironment = "MOORING_REST"),
    (name = "MOORING_DATABASE", fromEnvironment = "MOORING_DATABASE"),
    (name = "MOORING_REPLICA_SET", fromEnvironment = "MOORING_REPLICA_SET"),
  ],
  compatibilityDate = "2026-01-01",
);
