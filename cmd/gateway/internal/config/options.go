package config

import (
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/clientaddr"
	"github.com/mooringdb/mooring/service/idempotency"
	"github.com/mooringdb/mooring/service/seal"
)

// option holds one row of the table: everything about one setting.
type option struct {
	Name    string // as in the file; the flag and the variable follow from it
	Kind    string // the form of its value, for people
	Default string
	Doc     string
	Secret  bool // never printed; may also come from a file of its own, see fileSuffix
	Bool    bool // the flag may have no value
	NoFile  bool // not allowed in the configuration file
	// Reload is true if a new value takes effect when the configuration file is read again.
	Reload bool
	// parse checks the text and puts it into the Config. Its error does not quote a secret.
	parse func(c *Config, text string) error
	// shown returns what may be printed of a secret; nil: only that there is one.
	shown func(c *Config) string
}

// Options whose files are read again while the gateway runs.
const (
	handleKeys     = "handle.keys"
	idempotencyKey = "idempotency.key"
	apiKeys        = "auth.apiKeys"
	policyFile     = "policy.file"
	operators      = "auth.operators"
)

// Options that make the user of the deployment.
const (
	uriOption     = "uri"
	mongoUsername = "mongodb.username"
	mongoPassword = "mongodb.password"
)

// Addresses on which the gateway listens unless others are configured.
const (
	DefaultGRPCAddress = "127.0.0.1:27080"
	DefaultRESTAddress = "127.0.0.1:8080"
)

// fileSuffix follows the name of a secret in the name of the option for its file.
const fileSuffix = "File"

// envPrefix begins every environment variable of the gateway.
const envPrefix = "MOORING_"

// options is the table.
var options = []option{
	{
		Name: "config", Kind: "path", NoFile: true,
		Doc:   "YAML file with any of the options below.",
		parse: func(*Config, string) error { return nil },
	},
	{
		// Comes before the options whose files it is about.
		Name: "allowReadable", Kind: "list of paths",
		Doc: "Files with secrets that the gateway uses although other users of the machine can " +
			"read them. It refuses others (chmod o-r).",
		parse: into(func(c *Config) *[]string { return &c.AllowReadable }, parseList),
	},
	{
		// Comes before uri, which is read together with it.
		Name: mongoOptions, Kind: "options", Secret: true,
		Doc: "Options of the connection string (docs/connection-string.md): a mapping in the " +
			"configuration file, elsewhere name=value, one on each line. The connection string " +
			"takes precedence.",
		parse: into(func(c *Config) *map[string][]string { return &c.mongoOptions },
			parseMongoOptions),
		shown: shownMongoOptions,
	},
	{
		// These two are also read together with uri.
		Name: mongoUsername, Kind: "name", Secret: true,
		Doc:   "Name of the MongoDB user, not URL encoded, if the connection string has none.",
		parse: into(func(c *Config) *string { return &c.mongoUser.username }, parseText),
	},
	{
		Name: mongoPassword, Kind: "text", Secret: true,
		Doc: "Password of the MongoDB user, not URL encoded, if the connection string has none. " +
			"A change applies to new connections.",
		parse: into(func(c *Config) *string { return &c.mongoUser.password }, parseText),
	},
	{
		Name: uriOption, Kind: "connection string", Secret: true,
		Doc: "Address and options of the MongoDB deployment, mongodb://…. Required. Every user " +
			"of the machine can read a command line: prefer the file.",
		parse: parseURI,
		shown: func(c *Config) string { return c.MongoDB.String() },
	},
	{
		Name: "deployment.name", Kind: "name",
		Doc: "Name of the MongoDB deployment, the same at all replicas. They refuse cursor " +
			"tokens of another one. By default it is the host of mongodb+srv://, else " +
			"replicaSet, else the list of hosts. Name a sharded cluster without SRV whose list " +
			"of hosts may change.",
		parse: into(func(c *Config) *string { return &c.DeploymentName }, parseText),
	},
	{
		Name: "mongodb.tokenFile", Kind: "path",
		Doc: "File that holds an access token for MONGODB-OIDC without an ENVIRONMENT. The " +
			"gateway reads it whenever the deployment wants a new token.",
		parse: into(func(c *Config) *string { return &c.Token.File }, parseText),
	},
	{
		Name: "mongodb.tokenCommand", Kind: "program and arguments",
		Doc: "Program that writes an access token for MONGODB-OIDC without an ENVIRONMENT to its " +
			"standard output, with each argument on a line of its own. It runs without a shell " +
			"whenever the deployment wants a new token, for at most a minute.",
		parse: into(func(c *Config) *[]string { return &c.Token.Command }, parseLines),
	},
	{
		Name: "grpc.address", Kind: "host:port", Default: DefaultGRPCAddress,
		Doc: "Address on which gRPC listens; unix:/path is a Unix domain socket. An address that " +
			"other machines can reach needs TLS and authentication, or allowPlaintext and " +
			"allowUnauthenticated.",
		parse: into(func(c *Config) *string { return &c.GRPC.Address }, parseListener),
	},
	{
		Name: "grpc.reflection", Kind: "bool", Default: "true", Bool: true,
		Doc:   "Whether clients such as grpcurl can get the description of the API.",
		parse: into(func(c *Config) *bool { return &c.GRPC.Reflection }, parseBool),
	},
	{
		Name: "grpc.proxyProtocol", Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether the proxies in proxies.addresses begin each connection with a PROXY " +
			"protocol header, version 1 or 2, before TLS, which names the client. The gateway " +
			"closes their connections without it, and others' with it.",
		parse: into(func(c *Config) *bool { return &c.GRPC.Proxied }, parseBool),
	},
	{
		Name: "rest.address", Kind: "host:port", Default: DefaultRESTAddress,
		Doc:   "Address on which REST, /healthz and /readyz listen, as grpc.address.",
		parse: into(func(c *Config) *string { return &c.REST.Address }, parseListener),
	},
	{
		Name: "rest.proxyProtocol", Kind: "bool", Default: "false", Bool: true,
		Doc:   "As grpc.proxyProtocol, for the REST port.",
		parse: into(func(c *Config) *bool { return &c.REST.Proxied }, parseBool),
	},
	{
		Name: "rest.hosts", Reload: true, Kind: "list of names",
		Doc: "Names, without a port, by which REST clients reach a listener in plain text or on " +
			"loopback. Against DNS rebinding it refuses any other Host (421) but localhost, IP " +
			"addresses and the name in rest.address. *.example.com is all names below " +
			"example.com; * alone is any name.",
		parse: into(func(c *Config) *[]string { return &c.REST.Hosts }, parseHosts),
	},
	{
		Name: "rest.cors.origins", Reload: true, Kind: "list of origins",
		Doc: "Origins of the pages that a browser lets call the REST port (CORS), such as " +
			"https://app.example. One * in an origin matches any text; * alone allows every page " +
			"of every site.",
		parse: into(func(c *Config) *[]string { return &c.REST.CORS.Origins }, parseOrigins),
	},
	{
		Name: "rest.cors.headers", Reload: true, Kind: "list of names",
		Doc:   "Headers that these pages may send, beside those of the API (docs/browsers.md).",
		parse: into(func(c *Config) *[]string { return &c.REST.CORS.Headers }, parseList),
	},
	{
		Name: "rest.cors.credentials", Reload: true, Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether these pages may send a client certificate, and cookies for a proxy in " +
			"front. It needs origins without * alone. API keys and tokens do not need it.",
		parse: into(func(c *Config) *bool { return &c.REST.CORS.Credentials }, parseBool),
	},
	{
		Name: "dataApi.sources", Kind: "list of names",
		Doc: "Names that dataSource may have in the requests of the Atlas Data API " +
			"(docs/data-api.md), such as mongodb-atlas. Without a name the REST port does not " +
			"serve that API.",
		parse: into(func(c *Config) *[]string { return &c.DataAPI.Sources }, parseList),
	},
	{
		Name: "dataApi.insertStatus", Kind: "200 or 201", Default: "201",
		Doc:   "Status of the inserts of the Atlas Data API: some clients expect 200.",
		parse: into(func(c *Config) *int { return &c.DataAPI.InsertStatus }, parseInsertStatus),
	},
	{
		Name: "console.enabled", Kind: "bool", Default: "false", Bool: true,
		Doc:   "Whether the REST port serves the console at /console/ (docs/console.md).",
		parse: into(func(c *Config) *bool { return &c.Console.Enabled }, parseBool),
	},
	{
		Name: "console.oidc.clientId", Kind: "name",
		Doc: "Id of the console at auth.jwt.issuer, where people can then sign in to it " +
			"(docs/console.md).",
		parse: into(func(c *Config) *string { return &c.Console.OIDC.Client }, parseText),
	},
	{
		Name: "console.oidc.scope", Kind: "scopes", Default: "openid",
		Doc:   "Scopes that the console asks for, with spaces between them (docs/console.md).",
		parse: into(func(c *Config) *string { return &c.Console.OIDC.Scope }, parseText),
	},
	{
		Name: "tls.certificateFile", Kind: "path",
		Doc: "PEM file with the certificate chain of the gRPC and REST listeners, which without " +
			"it serve plain text. A change applies to new connections.",
		parse: into(func(c *Config) *string { return &c.TLS.CertificateFile }, parseText),
	},
	{
		Name: "tls.keyFile", Kind: "path",
		Doc:   "PEM file with the private key of that certificate.",
		parse: into(func(c *Config) *string { return &c.TLS.KeyFile }, parseText),
	},
	{
		Name: "tls.clientAuthorityFile", Kind: "path",
		Doc: "PEM file with the authorities that issue client certificates " +
			"(auth.certificateName).",
		parse: into(func(c *Config) *string { return &c.TLS.ClientAuthorityFile }, parseText),
	},
	{
		Name: "tls.clientCertificates", Kind: "optional or required", Default: "optional",
		Doc: "Whether each connection to the ports of gRPC and REST needs a client certificate, " +
			"health checks included.",
		parse: into(func(c *Config) *bool { return &c.TLS.RequireClient }, parseRequired),
	},
	{
		Name: "allowPlaintext", Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether gRPC and REST may listen without TLS on an address that other machines can " +
			"reach. Only behind a proxy or in a network that encrypts.",
		parse: into(func(c *Config) *bool { return &c.AllowPlaintext }, parseBool),
	},
	{
		Name: "allowUnauthenticated", Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether gRPC and REST may listen without authentication (auth.…) on an address " +
			"that other machines can reach. Every client then has the rights of the MongoDB " +
			"user.",
		parse: into(func(c *Config) *bool { return &c.AllowUnauthenticated }, parseBool),
	},
	{
		Name: apiKeys, Reload: true, Kind: "lines", Secret: true,
		Doc: "Hashes of valid API keys, one on each line, as `mooring key api new` prints them; " +
			"lines that start with # are comments.",
		parse: into(func(c *Config) **caller.KeyTable { return &c.Auth.APIKeys }, parseAPIKeys),
		shown: func(c *Config) string { return strings.Join(c.Auth.APIKeys.Describe(), "\n") },
	},
	{
		Name: "auth.jwt.issuer", Kind: "URL",
		Doc: "Issuer of valid JSON Web Tokens, exactly as in their iss, such as " +
			"https://issuer.example. The gateway finds its keys by OpenID Connect discovery. It " +
			"needs auth.jwt.audience.",
		parse: into(func(c *Config) *string { return &c.Auth.JWT.Issuer }, parseIssuer),
	},
	{
		Name: "auth.jwt.audience", Kind: "name",
		Doc:   "Name of this gateway in the aud of valid tokens.",
		parse: into(func(c *Config) *string { return &c.Auth.JWT.Audience }, parseText),
	},
	{
		Name: "auth.jwt.algorithms", Kind: "list", Default: "RS256,ES256",
		Doc: "Signature algorithms of valid tokens: " +
			strings.Join(caller.Algorithms(), ", ") + ".",
		parse: into(func(c *Config) *[]string { return &c.Auth.JWT.Algorithms }, parseAlgorithms),
	},
	{
		Name: "auth.jwt.skew", Kind: "duration", Default: "1m",
		Doc: "How much longer than its exp, and earlier than its nbf, a token is valid, since " +
			"clocks differ.",
		parse: into(func(c *Config) *time.Duration { return &c.Auth.JWT.Skew },
			durationWithin(0, 10*time.Minute)),
	},
	{
		Name: "auth.jwt.claim", Kind: "name", Default: "sub",
		Doc: "Claim of a token that has the principal's name. Choose one that users cannot " +
			"change.",
		parse: into(func(c *Config) *string { return &c.Auth.JWT.Claim }, parseText),
	},
	{
		Name: operators, Kind: "list",
		Doc: "Principals that may call DeploymentService, such as key:ann, jwt:ann or cert:ann, " +
			"to see servers and to see and close all clients' cursors. With policy.file the " +
			"policy decides.",
		parse: into(func(c *Config) *[]string { return &c.Auth.Operators }, parsePrincipals),
	},
	{
		Name: policyFile, Kind: "path",
		Doc: "File with rules in the Cedar language: who may do what with which documents and " +
			"fields (docs/policy.md). Without it every client may do everything but call " +
			"DeploymentService (auth.operators).",
		parse: into(func(c *Config) *string { return &c.Policy.File }, parseText),
	},
	{
		Name: "policy.javaScript", Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether a policy lets clients without limits on documents and fields use $where, " +
			"$function, $accumulator and the commands mapReduce, group and eval. Without " +
			"policy.file they may.",
		parse: into(func(c *Config) *bool { return &c.Policy.JavaScript }, parseBool),
	},
	{
		Name: "auth.certificateName", Kind: "name", Default: string(caller.Subject),
		Doc: "What names the principal in a client certificate: subject (the distinguished " +
			"name), the only commonName, or the only dns, uri or email of the alternative names. " +
			"With none, certificates are not credentials.",
		parse: into(func(c *Config) *caller.CertificateName { return &c.Auth.CertificateName },
			parseCertificateName),
	},
	{
		Name: "connections.max", Reload: true, Kind: "number or none", Default: "4096",
		Doc:   "How many client connections the gateway holds. It closes one more at once.",
		parse: into(func(c *Config) *int { return &c.Connections.Max }, parseLimit),
	},
	{
		Name: "connections.maxPerAddress", Reload: true, Kind: "number or none", Default: "2048",
		Doc: "How many of them may come from one address (of IPv6, from one /64 network), which " +
			"all clients behind a NAT share. Connections of Unix domain sockets and of " +
			"proxies.addresses do not count; if the PROXY protocol names a client, they count " +
			"for it.",
		parse: into(func(c *Config) *int { return &c.Connections.MaxPerAddress }, parseLimit),
	},
	{
		Name: "connections.maxAge", Kind: "duration or none", Default: "10m",
		Doc: "Age from which clients are told to use another connection, so that they spread " +
			"over new replicas. Calls in flight finish.",
		parse: into(func(c *Config) *time.Duration { return &c.Connections.MaxAge },
			orNone(durationWithin(time.Second, 24*time.Hour))),
	},
	{
		Name: "connections.maxStreams", Kind: "number", Default: "250",
		Doc: "How many calls an HTTP/2 connection may have in flight. Clients queue further " +
			"calls.",
		parse: into(func(c *Config) *int { return &c.Connections.MaxStreams }, parseCount),
	},
	{
		Name: "proxies.addresses", Kind: "list of networks",
		Doc: "IP addresses or networks, such as 10.0.0.0/8, of the proxies and load balancers " +
			"that may name a client's address (proxies.header, grpc.proxyProtocol, " +
			"rest.proxyProtocol). List no network with clients: each could claim another " +
			"address.",
		parse: into(func(c *Config) *[]netip.Prefix { return &c.Proxies.Networks }, parseNetworks),
	},
	{
		Name: "proxies.header", Kind: "Forwarded, X-Forwarded-For or none", Default: none,
		Doc: "Header or gRPC metadata to which proxies.addresses append their caller's address. " +
			"The client is the last address in it that is not in proxies.addresses. The header " +
			"counts from no other address.",
		parse: into(func(c *Config) *clientaddr.Header { return &c.Proxies.Header },
			parseProxyHeader),
	},
	{
		Name: "debug.address", Kind: "host:port", Default: none,
		Doc: "Loopback address or unix:/path on which /debug/pprof/ and /debug/vars listen. They " +
			"show memory contents and can slow the gateway down.",
		parse: into(func(c *Config) *string { return &c.DebugAddress }, parseLocal),
	},
	{
		Name: "admin.address", Kind: "host:port", Default: none,
		Doc: "Address or unix:/path on which /metrics listens, for Prometheus, and /healthz and " +
			"/readyz, for probes. It is plain HTTP without credentials: let only your monitoring " +
			"reach it. Only this machine may make calls that change something.",
		parse: into(func(c *Config) *string { return &c.AdminAddress }, parseListener),
	},
	{
		Name: "metrics.nativeHistograms", Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether duration histograms also have the native form for Prometheus: finer " +
			"buckets in fewer series.",
		parse: into(func(c *Config) *bool { return &c.Metrics.NativeHistograms }, parseBool),
	},
	{
		Name: "addressesFile", Kind: "path",
		Doc: "File to which the gateway writes the addresses of its listeners once they are " +
			"bound, for scripts with port 0: " +
			"{\"grpc\":\"127.0.0.1:27080\",\"rest\":\"127.0.0.1:8080\"}.",
		parse: into(func(c *Config) *string { return &c.AddressesFile }, parseText),
	},
	{
		Name: handleKeys, Reload: true, Kind: "keys", Secret: true,
		Doc: "Keys that seal cursor tokens, one on each line, as `mooring key new` prints them; " +
			"lines that start with # are comments. The first one seals, and all of them open " +
			"(docs/operations.md). Give all replicas the same list. Without a key the gateway " +
			"makes one, which is lost when it stops.",
		parse: into(func(c *Config) *[]seal.Key { return &c.HandleKeys }, parseKeys),
	},
	{
		Name: idempotencyKey, Reload: true, Kind: "key", Secret: true,
		Doc: "Key from which the gateway derives the sessions of calls with an " +
			"`Idempotency-Key`, as `mooring key new` prints it, the same at all replicas. " +
			"Required with handle.keys; otherwise the gateway makes one, which is lost when it " +
			"stops: a call repeated after that is done again. To change it, add a line, TIME " +
			"KEY, such as 2026-01-31T12:00:00Z: calls with a key are refused from then for 31 " +
			"minutes, until the second is in force (docs/operations.md).",
		parse: into(func(c *Config) *idempotency.Schedule { return &c.Idempotency }, parseSchedule),
	},
	{
		Name: "replica.address", Kind: "host:port", Default: none,
		Doc: "Address on which this gateway listens for other replicas, with mutual TLS by the " +
			"handle keys, which it needs. With none, no other replica can continue its cursors. " +
			"Clients do not need this port.",
		parse: into(func(c *Config) *string { return &c.Replica.Address }, parseAddress),
	},
	{
		Name: "replica.advertise", Kind: "host or host:port",
		Doc: "Address at which the other replicas reach replica.address, never that of a load " +
			"balancer; at most 61 bytes with the port. Without a port it has that of " +
			"replica.address; without the option it is replica.address, which must then have a " +
			"host.",
		parse: into(func(c *Config) *string { return &c.Replica.Advertise }, parseAdvertise),
	},
	{
		Name: "replica.peers", Kind: "list of host:port",
		Doc: "Addresses of the other replicas, and of this one if you like. A DNS name means all " +
			"its addresses: that of a headless Service, never a ClusterIP. Without peers a " +
			"replica finds only those that tokens name or that call it, and its cursors may have " +
			"nowhere to move when it stops.",
		parse: into(func(c *Config) *[]string { return &c.Replica.Peers }, parsePeers),
	},
	{
		Name: "cursors.idle", Kind: "duration", Default: "10m",
		Doc: "How long a cursor waits for its next page, and a stream for its client to take the " +
			"next message, before it is closed. A gateway holds 100,000 cursors; one more closes " +
			"the longest waiting.",
		parse: into(func(c *Config) *time.Duration { return &c.Cursors.Idle },
			durationWithin(time.Second, 24*time.Hour)),
	},
	{
		Name: "transactions.idle", Kind: "duration", Default: "1m",
		Doc: "How long a transaction waits for its next call before it is aborted. MongoDB " +
			"aborts it a minute after its first operation (transactionLifetimeLimitSeconds).",
		parse: into(func(c *Config) *time.Duration { return &c.Transactions.Idle },
			durationWithin(time.Second, time.Hour)),
	},
	{
		Name: "cursors.unreadIdle", Kind: "duration", Default: "1m",
		Doc: "How long the cursor of a GET waits for its second page, at most cursors.idle.",
		parse: into(func(c *Config) *time.Duration { return &c.Cursors.UnreadIdle },
			durationWithin(time.Second, 24*time.Hour)),
	},
	{
		Name: "cursors.pageMemory", Kind: "size", Default: "64MiB",
		Doc: "Memory for the pages sent last, which a repeated call gets again, and for the rest " +
			"of a server's batch that was larger than a page; at most half of memory.budget. " +
			"When it is full, the oldest pages go (CursorTokenReused); while rests fill it, no " +
			"cursor is opened.",
		parse: into(func(c *Config) *int64 { return &c.Cursors.PageMemory }, sizeWithin(0, 1<<40)),
	},
	{
		Name: "cursors.maxPerPrincipal", Kind: "number or none", Default: "100",
		Doc: "How many cursors and transactions a principal may hold open in this gateway. One " +
			"more closes its least recently used cursor whose second page was not asked for, or " +
			"else gets RESOURCE_EXHAUSTED. Principals share 100000.",
		parse: into(func(c *Config) *int { return &c.Cursors.MaxPerPrincipal }, parseLimit),
	},
	{
		Name: "cursors.maxPinned", Kind: "percent", Default: "80%",
		Doc: "Largest part of each pool (maxPoolSize) that cursors and transactions may hold " +
			"behind a load balancer (loadBalanced=true); at least one connection. A call that " +
			"needs one more gets RESOURCE_EXHAUSTED.",
		parse: into(func(c *Config) *float64 { return &c.Cursors.MaxPinned }, parsePercent),
	},
	{
		Name: "pages.maxSize", Kind: "size", Default: "3MiB",
		Doc: "Largest page of documents, and message of a stream (of which none exceeds 448 " +
			"KiB). A larger document is sent alone. Most gRPC clients refuse messages over 4 " +
			"MiB.",
		parse: into(func(c *Config) *int64 { return &c.Pages.MaxSize }, sizeWithin(1<<10, 48<<20)),
	},
	{
		Name: "streams.memory", Kind: "size", Default: "32MiB",
		Doc: "Memory for the batches of all streams. With more streams they get smaller, down to " +
			"64 KiB.",
		parse: into(func(c *Config) *int64 { return &c.Streams.Memory }, sizeWithin(1<<20, 1<<40)),
	},
	{
		Name: "streams.max", Reload: true, Kind: "number, auto or none", Default: auto,
		Doc: "How many streams principals share. One more gets UNAVAILABLE, or " +
			"RESOURCE_EXHAUSTED if its principal has more than all others. auto is one for each " +
			"128 KiB of memory.budget.",
		parse: into(func(c *Config) *int { return &c.Streams.Max }, parseAutoLimit),
	},
	{
		Name: "streams.maxPerPrincipal", Reload: true, Kind: "number or none", Default: "2000",
		Doc:   "How many streams a principal may have open. One more gets RESOURCE_EXHAUSTED.",
		parse: into(func(c *Config) *int { return &c.Streams.MaxPerPrincipal }, parseLimit),
	},
	{
		Name: "changeStreams.maxPerPrincipal", Reload: true, Kind: "number or none",
		Default: none,
		Doc: "How many change streams a principal may have open. One more gets " +
			"RESOURCE_EXHAUSTED. Principals share 20 less than maxPoolSize for those that have " +
			"cursors of their own.",
		parse: into(func(c *Config) *int { return &c.ChangeStreams.MaxPerPrincipal }, parseLimit),
	},
	{
		Name: "changeStreams.maxPerTicket", Reload: true, Kind: "number or none", Default: "5",
		Doc: "How many change streams of one ticket may be open. One more gets " +
			"RESOURCE_EXHAUSTED.",
		parse: into(func(c *Config) *int { return &c.ChangeStreams.MaxPerTicket }, parseLimit),
	},
	{
		Name: "memory.budget", Kind: "size or auto", Default: auto,
		Doc: "Memory that principals share for requests being read, servers' answers, responses, " +
			"and what cursors and streams keep. What does not fit waits for requests.queueTime. " +
			"The process takes about a quarter more. auto is four fifths of GOMEMLIMIT, else of " +
			"90% of the container's limit, else 512MiB. Less than twice requests.maxSize refuses " +
			"the largest requests.",
		parse: into(func(c *Config) *int64 { return &c.MemoryBudget }, parseBudget),
	},
	{
		Name: "requests.maxItems", Kind: "number", Default: "100000",
		Doc:   "How many items all lists of a request may have together, but for an import.",
		parse: into(func(c *Config) *int { return &c.Requests.MaxItems }, parseCount),
	},
	{
		Name: "requests.maxSize", Kind: "size", Default: "64MiB",
		Doc:   "Largest request message or body.",
		parse: into(func(c *Config) *int64 { return &c.MaxRequestSize }, sizeWithin(1<<10, 1<<30)),
	},
	{
		Name: "responses.minCompressed", Kind: "size", Default: "2KiB",
		Doc: "Size from which a response or message is compressed, with gzip or zstd, if the " +
			"client accepts that; larger is better on a fast network. Each response being " +
			"compressed takes 1 MiB more of memory.budget. REST's streams are always compressed.",
		parse: into(func(c *Config) *int64 { return &c.MinCompressed }, sizeWithin(256, 1<<30)),
	},
	{
		Name: "requests.maxAbandoned", Kind: "percent", Default: "20%",
		Doc: "Largest part of a pool's connections (maxPoolSize) that principals share for " +
			"operations whose clients have disconnected; at least one. Such an operation " +
			"continues for at most 30 seconds. Beyond the part it ends; a write takes the place " +
			"of a read.",
		parse: into(func(c *Config) *float64 { return &c.MaxAbandoned }, parsePercent),
	},
	{
		Name: "requests.maxTimeout", Reload: true, Kind: "duration or none", Default: none,
		Doc: "Longest time that a request, but not a stream, may take, whatever deadline its " +
			"client sets.",
		parse: into(func(c *Config) *time.Duration { return &c.MaxRequestTimeout },
			orNone(durationWithin(time.Millisecond, 24*time.Hour))),
	},
	{
		Name: "requests.timeout", Reload: true, Kind: "duration", Default: "0s",
		Doc: "How long a request, or a batch of an Import, but not a stream, may take if the " +
			"client sets no deadline; 0s: no limit but requests.maxTimeout.",
		parse: into(func(c *Config) *time.Duration { return &c.RequestTimeout },
			durationWithin(0, 24*time.Hour)),
	},
	{
		Name: "requests.maxInFlight", Reload: true, Kind: "number, auto or none", Default: auto,
		Doc: "How many requests in flight principals share, and streams while a server works for " +
			"them, but no change streams. The rest queues, in turns between principals. auto is " +
			"maxPoolSize (100 by default): set more if reads go to several servers.",
		parse: into(func(c *Config) *int { return &c.Requests.MaxInFlight }, parseAutoLimit),
	},
	{
		Name: "requests.maxInFlightPerPrincipal", Reload: true, Kind: "number or none",
		Default: none,
		Doc:     "As requests.maxInFlight, for one principal.",
		parse: into(func(c *Config) *int { return &c.Requests.MaxInFlightPerPrincipal },
			parseLimit),
	},
	{
		Name: "requests.rate", Reload: true, Kind: "number or none", Default: none,
		Doc:   "How many requests and streams may begin in a second. More get UNAVAILABLE.",
		parse: into(func(c *Config) *int { return &c.Requests.Rate }, parseLimit),
	},
	{
		Name: "requests.ratePerPrincipal", Reload: true, Kind: "number or none", Default: none,
		Doc:   "How many of them one principal may begin. More get RESOURCE_EXHAUSTED.",
		parse: into(func(c *Config) *int { return &c.Requests.RatePerPrincipal }, parseLimit),
	},
	{
		Name: "requests.queueTime", Reload: true, Kind: "duration", Default: "5s",
		Doc: "How long a request waits for its turn, for memory and, unless it is 0s or " +
			"waitQueueTimeoutMS is set, for a connection to a server. Then it is refused with " +
			"RESOURCE_EXHAUSTED (429) if its principal has more than all others together, else " +
			"with UNAVAILABLE (503). 0s refuses at once.",
		parse: into(func(c *Config) *time.Duration { return &c.Requests.QueueTime },
			durationWithin(0, time.Hour)),
	},
	{
		Name: "drain.linger", Kind: "duration", Default: "2s",
		Doc: "How long the gateway, which is then not ready, still serves calls after SIGTERM or " +
			"SIGINT, so that load balancers notice.",
		parse: into(func(c *Config) *time.Duration { return &c.DrainLinger },
			durationWithin(0, time.Minute)),
	},
	{
		Name: "drain.timeout", Kind: "duration", Default: "20s",
		Doc: "How long requests and streams in flight may continue after drain.linger. The rest " +
			"ends with UNAVAILABLE. A second signal ends the gateway at once.",
		parse: into(func(c *Config) *time.Duration { return &c.DrainTimeout },
			durationWithin(0, time.Hour)),
	},
	{
		Name: "errors.serverTexts", Kind: "auto, show or hide", Default: string(TextsAuto),
		Doc: "Whether errors give clients the addresses of servers, and the server's own words " +
			"and documents (such as the value of a duplicate key). auto hides them from " +
			"authenticated clients that are not operators (auth.operators, or GetTopology in the " +
			"policy). The log has the addresses, and the words unless they may quote data.",
		parse: into(func(c *Config) *ServerTexts { return &c.ServerTexts }, parseServerTexts),
	},
	{
		Name: "audit.file", Kind: "path, log or none", Default: none,
		Doc: "File to which the gateway appends a JSON line for each write, refusal and " +
			"administrative call, without values; log is the gateway's log, from level info. " +
			"SIGHUP reopens the file.",
		parse: into(func(c *Config) *string { return &c.Audit }, parseOrNone),
	},
	{
		Name: "tracing.sampling", Reload: true, Kind: "percentage or auto", Default: auto,
		Doc: "Share of the traces that begin at the gateway to record, such as 0.05%; a client's " +
			"traceparent decides about its own. auto leaves it to OTEL_TRACES_SAMPLER. Traces " +
			"need OTEL_EXPORTER_OTLP_ENDPOINT (docs/tracing.md).",
		parse: into(func(c *Config) **float64 { return &c.Tracing.Sampling }, parseShare),
	},
	{
		Name: "tracing.comment", Reload: true, Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether commands of recorded traces have the comment {traceparent: …}, for " +
			"MongoDB's logs and profiler (4.4 or newer). A request's own comment stays.",
		parse: into(func(c *Config) *bool { return &c.Tracing.Comment }, parseBool),
	},
	{
		Name: "log.level", Reload: true, Kind: "level", Default: "info",
		Doc: "Lowest level that is logged: debug (one line for each request), info (changes of " +
			"the deployment, summaries of refusals), warn or error. PUT /log/level on the admin " +
			"port changes it.",
		parse: into(func(c *Config) *logLevel { return &c.Log.Level }, parseLevel),
	},
	{
		Name: "log.driver", Kind: "list", Default: none,
		Doc: "Components of the driver whose messages are logged at debug, without the content " +
			"of commands: command, connection, serverSelection, topology.",
		parse: into(func(c *Config) *[]string { return &c.Log.Driver }, parseComponents),
	},
	{
		Name: "log.slowRequest", Kind: "duration or none", Default: "1s",
		Doc: "Duration from which a unary call is logged as slow, with its namespace and the " +
			"shape of its filter.",
		parse: into(func(c *Config) *time.Duration { return &c.Log.SlowRequest },
			orNone(durationWithin(time.Millisecond, time.Hour))),
	},
	{
		Name: "log.format", Kind: "text or json", Default: "text",
		Doc:   "Format of the log on standard error.",
		parse: into(func(c *Config) *LogFormat { return &c.Log.Format }, parseFormat),
	},
}

// flag returns the option's flag without its dashes: tls.certificateFile is tls-certificate-file.
func (o option) flag() string { return spell(o.Name, '-') }

// env returns the option's environment variable: tls.certificateFile is
// MOORING_TLS_CERTIFICATE_FILE.
func (o option) env() string { return envPrefix + strings.ToUpper(spell(o.Name, '_')) }

// withFile returns the option and, for a secret, the option that names its file.
func (o option) withFile() []option {
	if !o.Secret {
		return []option{o}
	}
	return []option{
		o, {Name: o.Name + fileSuffix, Kind: "path", Doc: "File that holds " + o.Name + "."},
	}
}

// spell returns a dotted camelCase name in lower case with sep between its words.
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
