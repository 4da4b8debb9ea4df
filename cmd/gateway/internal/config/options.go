package config

import (
	"strings"
	"time"
	"unicode"

	"github.com/mooringdb/mooring/service/seal"
)

// option is one row of the table: all that is to be known of one setting.
type option struct {
	Name    string // as the file spells it; the flag and the variable follow from it
	Kind    string // what its value looks like, for people
	Default string
	Doc     string
	Secret  bool // never printed; can also be given as the content of a file, see fileSuffix
	Bool    bool // the flag may stand without a value
	NoFile  bool // makes no sense inside the configuration file
	// parse checks the text and puts it into the Config. What it says of a secret's text does not quote it.
	parse func(c *Config, text string) error
	// shown is what may be printed of a secret; nil: that there is one.
	shown func(c *Config) string
}

// handleKeys is the option whose file is read again while the gateway runs.
const handleKeys = "handle.keys"

// The options that a user of the deployment comes from.
const (
	uriOption     = "uri"
	mongoUsername = "mongodb.username"
	mongoPassword = "mongodb.password"
)

// fileSuffix makes, of a secret's name, the name of the option that says which file holds the secret.
const fileSuffix = "File"

// envPrefix begins every environment variable that is meant for the gateway.
const envPrefix = "MOORING_"

// options is the table.
var options = []option{
	{
		Name: "config", Kind: "path", NoFile: true,
		Doc:   "YAML file with any of the options below.",
		parse: func(*Config, string) error { return nil },
	},
	{
		// Before uri, which is read together with it.
		Name: mongoOptions, Kind: "options", Secret: true,
		Doc: "Options of the connection string that do not stand in it, by the same names (docs/connection-string.md): in " +
			"the configuration file a mapping, elsewhere name=value, one a line. What the connection string says counts more.",
		parse: into(func(c *Config) *map[string][]string { return &c.mongoOptions }, parseMongoOptions),
		shown: shownMongoOptions,
	},
	{
		// These two are read together with uri, too.
		Name: mongoUsername, Kind: "name", Secret: true,
		Doc:   "Name of the MongoDB user, if it does not stand in the connection string. Here it is not URL encoded.",
		parse: into(func(c *Config) *string { return &c.mongoUser.username }, parseText),
	},
	{
		Name: mongoPassword, Kind: "text", Secret: true,
		Doc: "Password of the MongoDB user, if it does not stand in the connection string. Here it is not URL encoded. The files of " +
			"the name, the password and the connection string are looked at every five seconds: when two looks have found the " +
			"same new user, or at once on SIGHUP, new connections log in as that user, and old ones go on.",
		parse: into(func(c *Config) *string { return &c.mongoUser.password }, parseText),
	},
	{
		Name: uriOption, Kind: "connection string", Secret: true,
		Doc: "Connection string of the MongoDB deployment, mongodb://…. Required. On a command line every user of the " +
			"machine can read it: prefer the file.",
		parse: parseURI,
		shown: func(c *Config) string { return c.MongoDB.String() },
	},
	{
		Name: "deployment.name", Kind: "name",
		Doc: "Name of the MongoDB deployment, for the tokens of cursors: a token is good for the deployment that it was made for, and " +
			"replicas refuse those of another one. All replicas need the same. Without it, it is the host of mongodb+srv://, else " +
			"replicaSet, else the list of hosts: a sharded cluster without SRV should have a name, so that its list of hosts can " +
			"change while cursors are open.",
		parse: into(func(c *Config) *string { return &c.DeploymentName }, parseText),
	},
	{
		Name: "mongodb.tokenFile", Kind: "path",
		Doc: "File that holds an access token for MONGODB-OIDC, in place of an ENVIRONMENT in the connection string. It is read " +
			"whenever the deployment wants a new token.",
		parse: into(func(c *Config) *string { return &c.Token.File }, parseText),
	},
	{
		Name: "mongodb.tokenCommand", Kind: "program and arguments",
		Doc: "Program that writes an access token for MONGODB-OIDC to its standard output, in place of an ENVIRONMENT in the " +
			"connection string; each argument on a line of its own. It is run without a shell whenever the deployment wants a new " +
			"token, and has a minute.",
		parse: into(func(c *Config) *[]string { return &c.Token.Command }, parseLines),
	},
	{
		Name: "grpc.address", Kind: "host:port", Default: "127.0.0.1:27080",
		Doc: "Where gRPC listens. Port 0 lets the kernel choose one; none means no gRPC. The default can be reached " +
			"from this machine only.",
		parse: into(func(c *Config) *string { return &c.GRPC.Address }, parseAddress),
	},
	{
		Name: "grpc.reflection", Kind: "bool", Default: "true", Bool: true,
		Doc:   "Whether clients such as grpcurl may ask the gateway for the description of its API.",
		parse: into(func(c *Config) *bool { return &c.GRPC.Reflection }, parseBool),
	},
	{
		Name: "rest.address", Kind: "host:port", Default: "127.0.0.1:8080",
		Doc: "Where REST, /healthz and /readyz listen. Port 0 lets the kernel choose one; none means no REST. The " +
			"default can be reached from this machine only.",
		parse: into(func(c *Config) *string { return &c.REST.Address }, parseAddress),
	},
	{
		Name: "tls.certificateFile", Kind: "path",
		Doc: "PEM file with the certificate chain that both listeners serve. Without it they serve plain text. It is " +
			"read once, at the start.",
		parse: into(func(c *Config) *string { return &c.TLS.CertificateFile }, parseText),
	},
	{
		Name: "tls.keyFile", Kind: "path",
		Doc:   "PEM file with the private key of that certificate.",
		parse: into(func(c *Config) *string { return &c.TLS.KeyFile }, parseText),
	},
	{
		Name: "debug.address", Kind: "host:port", Default: none,
		Doc: "Where /debug/pprof/ and /debug/vars listen, for whoever looks into the gateway's own workings. They show " +
			"memory contents and can slow the gateway down: never open this to clients.",
		parse: into(func(c *Config) *string { return &c.DebugAddress }, parseAddress),
	},
	{
		Name: "addressesFile", Kind: "path",
		Doc: "File that gets the addresses of the listeners as JSON, once they listen: " +
			`{"grpc":"127.0.0.1:27080","rest":"127.0.0.1:8080"}, and debug and replica if they are there. Made for scripts that ` +
			"use port 0.",
		parse: into(func(c *Config) *string { return &c.AddressesFile }, parseText),
	},
	{
		Name: handleKeys, Kind: "keys", Secret: true,
		Doc: "Keys that seal the tokens of cursors, one a line, each as `mooring key new` prints it; lines that start " +
			"with # are comments. The first seals and all open; docs/operations.md says how to change them. All replicas " +
			"need the same list. Without one the gateway makes a key, which it forgets when it stops. A file of keys is " +
			"looked at every five seconds: new keys count when two looks have found the same, or at once on SIGHUP. A file that " +
			"cannot be used is an error in the log, and the keys stay.",
		parse: into(func(c *Config) *[]seal.Key { return &c.HandleKeys }, parseKeys),
	},
	{
		Name: "replica.address", Kind: "host:port", Default: none,
		Doc: "Where this gateway listens for its other replicas, with mutual TLS by the handle keys, which it needs. Port 0 " +
			"lets the kernel choose one; none means that this is the only replica, and cursors cannot be continued " +
			"elsewhere. No client has business there.",
		parse: into(func(c *Config) *string { return &c.Replica.Address }, parseAddress),
	},
	{
		Name: "replica.advertise", Kind: "host or host:port",
		Doc: "Where the other replicas reach that listener: an address of this replica's own, never of a load balancer. Without " +
			"a port it is that of replica.address; without the option it is replica.address, which must then name a host. At most 77 bytes with the " +
			"port: it stands in every token.",
		parse: into(func(c *Config) *string { return &c.Replica.Advertise }, parseAdvertise),
	},
	{
		Name: "replica.peers", Kind: "list of host:port",
		Doc: "Where to look for the other replicas, one a line or with commas between them. A DNS name stands for all its " +
			"addresses, such as that of a headless Service, and never one address that several replicas share, such as a ClusterIP; this " +
			"replica itself may be among them. Without it a replica " +
			"finds only those that tokens name, and its cursors cannot move elsewhere when it stops.",
		parse: into(func(c *Config) *[]string { return &c.Replica.Peers }, parsePeers),
	},
	{
		Name: "cursors.idle", Kind: "duration", Default: "10m",
		Doc: "How long a cursor waits for the next page before it is closed. Each page starts the time anew. A stream may " +
			"wait as long for its client to take the next message. A gateway holds " +
			"100,000 cursors; one more closes the one that has waited longest.",
		parse: into(func(c *Config) *time.Duration { return &c.Cursors.Idle }, durationWithin(time.Second, 24*time.Hour)),
	},
	{
		Name: "cursors.unreadIdle", Kind: "duration", Default: "1m",
		Doc: "How long the cursor of a GET waits for its second page: many clients read the first one alone. From then on " +
			"cursors.idle counts, which also bounds it.",
		parse: into(func(c *Config) *time.Duration { return &c.Cursors.UnreadIdle }, durationWithin(time.Second, 24*time.Hour)),
	},
	{
		Name: "cursors.pageMemory", Kind: "size", Default: "64MiB",
		Doc: "Memory for what cursors hold between two pages: pages that were sent, so that a client that asks for one again " +
			"gets the same one, and what is left of a server's batch that was larger than a page. When it is full the oldest " +
			"pages are forgotten (asking again is CursorTokenReused), then the oldest leftovers (CursorPositionUnknown).",
		parse: into(func(c *Config) *int64 { return &c.Cursors.PageMemory }, sizeWithin(0, 1<<40)),
	},
	{
		Name: "cursors.maxPerPrincipal", Kind: "number or none", Default: "100",
		Doc: "How many cursors one principal may hold open in this gateway. A call that may open one more is RESOURCE_EXHAUSTED " +
			"and is not run. It does not apply to clients that are not authenticated. none is no limit.",
		parse: into(func(c *Config) *int { return &c.Cursors.MaxPerPrincipal }, parseLimit),
	},
	{
		Name: "cursors.maxPinned", Kind: "percent", Default: "80%",
		Doc: "Largest part of each connection pool (maxPoolSize) that open cursors and transactions may keep to themselves, as " +
			"they do behind a load balancer (loadBalanced=true); at least one connection. Opening one more is RESOURCE_EXHAUSTED.",
		parse: into(func(c *Config) *float64 { return &c.Cursors.MaxPinned }, parsePercent),
	},
	{
		Name: "pages.maxSize", Kind: "size", Default: "3MiB",
		Doc: "Largest page of documents; the messages of a stream hold no more, and at most 1 MiB. One document that is " +
			"larger still goes out, alone. Most gRPC clients refuse messages over 4 MiB unless they are told otherwise.",
		parse: into(func(c *Config) *int64 { return &c.Pages.MaxSize }, sizeWithin(1<<10, 48<<20)),
	},
	{
		Name: "streams.memory", Kind: "size", Default: "32MiB",
		Doc: "Memory that the batches of all streams share: the more streams, the smaller their batches, but never below " +
			"64 KiB.",
		parse: into(func(c *Config) *int64 { return &c.Streams.Memory }, sizeWithin(1<<20, 1<<40)),
	},
	{
		Name: "requests.maxSize", Kind: "size", Default: "64MiB",
		Doc:   "Largest request message or body.",
		parse: into(func(c *Config) *int64 { return &c.MaxRequestSize }, sizeWithin(1<<10, 1<<30)),
	},
	{
		Name: "requests.timeout", Kind: "duration", Default: "0s",
		Doc: "How long a request may take that brings no deadline of its own (the gRPC deadline, Request-Timeout, timeout); " +
			"0s is no limit. It does not apply to streams. A deadline that the client gives may be longer.",
		parse: into(func(c *Config) *time.Duration { return &c.RequestTimeout }, durationWithin(0, 24*time.Hour)),
	},
	{
		Name: "drain.linger", Kind: "duration", Default: "2s",
		Doc: "How long the gateway still takes calls after SIGTERM or SIGINT, while it is not ready and tells clients to use other " +
			"connections: load balancers learn late that it stops.",
		parse: into(func(c *Config) *time.Duration { return &c.DrainLinger }, durationWithin(0, time.Minute)),
	},
	{
		Name: "drain.timeout", Kind: "duration", Default: "20s",
		Doc: "How long requests and streams in flight may go on after drain.linger. What is left then is cut with " +
			"UNAVAILABLE and its cursors are closed on the server. A second signal ends the gateway at once.",
		parse: into(func(c *Config) *time.Duration { return &c.DrainTimeout }, durationWithin(0, time.Hour)),
	},
	{
		Name: "log.level", Kind: "level", Default: "info",
		Doc: "Least level that is logged: debug (every request and every command), info (changes of the deployment), " +
			"warn or error.",
		parse: into(func(c *Config) *logLevel { return &c.Log.Level }, parseLevel),
	},
	{
		Name: "log.format", Kind: "text or json", Default: "text",
		Doc:   "How a log line looks. Logs go to standard error.",
		parse: into(func(c *Config) *LogFormat { return &c.Log.Format }, parseFormat),
	},
}

// flag returns the option's flag without its dashes: tls.certificateFile is tls-certificate-file.
func (o option) flag() string { return spell(o.Name, '-') }

// env returns the option's environment variable: tls.certificateFile is MOORING_TLS_CERTIFICATE_FILE.
func (o option) env() string { return envPrefix + strings.ToUpper(spell(o.Name, '_')) }

// withFile returns the option and, for a secret, the option that names its file.
func (o option) withFile() []option {
	if !o.Secret {
		return []option{o}
	}
	return []option{o, {Name: o.Name + fileSuffix, Kind: "path", Doc: "File that holds " + o.Name + "."}}
}

// spell writes a dotted camelCase name in lower case with sep between its words.
func spell(name string, sep rune) string {
	var b strings.Builder
	for _, r := range name {
		switch {
		case r == '.':
			b.WriteRune(sep)
		case unicode.IsUpper(r):
			b.WriteRune(sep)
			b.WriteRune(unicode.ToLower(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
