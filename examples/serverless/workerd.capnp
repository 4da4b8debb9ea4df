# The function in workerd, which is what Cloudflare Workers run on:
#
#   npm install && npx workerd serve workerd.capnp
#
# The variables are those of the process: MOORING_REST, MOORING_KEY, MOORING_DATABASE.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "function", worker = .function),
    # A gateway in the same network has a private address; https needs the authorities.
    (name = "internet", network = (
      allow = ["public", "private"],
      tlsOptions = (trustBrowserCas = true),
    )),
  ],
  sockets = [(name = "http", address = "127.0.0.1:8787", http = (), service = "function")],
);

const function :Workerd.Worker = (
  modules = [
    (name = "handler.js", esModule = embed "handler.js"),
    (name = "mooring-client", esModule = embed "node_modules/mooring-client/index.js"),
    (name = "operations.js", esModule = embed "node_modules/mooring-client/operations.js"),
  ],
  bindings = [
    (name = "MOORING_REST", fromEnvironment = "MOORING_REST"),
    (name = "MOORING_KEY", fromEnvironment = "MOORING_KEY"),
    (name = "MOORING_DATABASE", fromEnvironment = "MOORING_DATABASE"),
  ],
  compatibilityDate = "2026-01-01",
);
