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
		Doc: "Files with secrets that the gateway uses although other users of the machine " +
			"can read them: paths as in the other options, one on each line or separated by " +
			"commas. No other file with secrets may be readable by others (chmod o-r).",
		parse: into(func(c *Config) *[]string { return &c.AllowReadable }, parseList),
	},
	{
		// Comes before uri, which is read together with it.
		Name: mongoOptions, Kind: "options", Secret: true,
		Doc: "Options of the connection string, under the same names " +
			"(docs/connection-string.md): a mapping in the configuration file, elsewhere " +
			"name=value, one on each line. An option of the connection string itself takes " +
			"precedence.",
		parse: into(func(c *Config) *map[string][]string { return &c.mongoOptions },
			parseMongoOptions),
		shown: shownMongoOptions,
	},
	{
		// These two are also read together with uri.
		Name: mongoUsername, Kind: "name", Secret: true,
		Doc: "Name of the MongoDB user, if the connection string has none. Do not URL encode it " +
			"here.",
		parse: into(func(c *Config) *string { return &c.mongoUser.username }, parseText),
	},
	{
		Name: mongoPassword, Kind: "text", Secret: true,
		Doc: "Password of the MongoDB user, if the connection string has none. Do not URL " +
			"encode it here. The gateway reads the files of the name, the password and the " +
			"connection string every five seconds and applies a change after it has read it " +
			"twice; on SIGHUP it applies it at once. New connections log in as the new user; " +
			"existing ones stay open.",
		parse: into(func(c *Config) *string { return &c.mongoUser.password }, parseText),
	},
	{
		Name: uriOption, Kind: "connection string", Secret: true,
		Doc: "Connection string of the MongoDB deployment, mongodb://…. Required. Every user of " +
			"the machine can read a command line: prefer the file.",
		parse: parseURI,
		shown: func(c *Config) string { return c.MongoDB.String() },
	},
	{
		Name: "deployment.name", Kind: "name",
		Doc: "Name of the MongoDB deployment. Every cursor token contains it, and replicas " +
			"refuse tokens of another deployment. Give all replicas the same name. Without one, " +
			"the name is the host of mongodb+srv://, else replicaSet, else the list of hosts. Name " +
			"a sharded cluster without SRV, so that its list of hosts can change while cursors " +
			"are " +
			"open.",
		parse: into(func(c *Config) *string { return &c.DeploymentName }, parseText),
	},
	{
		Name: "mongodb.tokenFile", Kind: "path",
		Doc: "File that holds an access token for MONGODB-OIDC; the connection string then has " +
			"no ENVIRONMENT. The gateway reads it whenever the deployment wants a new token.",
		parse: into(func(c *Config) *string { return &c.Token.File }, parseText),
	},
	{
		Name: "mongodb.tokenCommand", Kind: "program and arguments",
		Doc: "Program that writes an access token for MONGODB-OIDC to its standard output; the " +
			"connection string then has no ENVIRONMENT. Write each argument on a line of its " +
			"own. " +
			"The gateway runs the program without a shell whenever the deployment wants a new " +
			"token, and stops it after a minute.",
		parse: into(func(c *Config) *[]string { return &c.Token.Command }, parseLines),
	},
	{
		Name: "grpc.address", Kind: "host:port", Default: DefaultGRPCAddress,
		Doc: "Address on which gRPC listens. With port 0 the kernel chooses a port; " +
			"unix:/path is a Unix domain socket; none turns gRPC off. Only this machine can " +
			"reach the default. An address that others can reach needs TLS and authentication, " +
			"or allowPlaintext and allowUnauthenticated.",
		parse: into(func(c *Config) *string { return &c.GRPC.Address }, parseListener),
	},
	{
		Name: "grpc.reflection", Kind: "bool", Default: "true", Bool: true,
		Doc: "Whether clients such as grpcurl can get the description of the API from the " +
			"gateway.",
		parse: into(func(c *Config) *bool { return &c.GRPC.Reflection }, parseBool),
	},
	{
		Name: "grpc.proxyProtocol", Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether the proxies in proxies.addresses begin each connection to the gRPC " +
			"port with a PROXY protocol header, version 1 or 2, before TLS, which names the " +
			"client. The gateway closes a listed proxy's connection without the header, and " +
			"another address's connection with it.",
		parse: into(func(c *Config) *bool { return &c.GRPC.Proxied }, parseBool),
	},
	{
		Name: "rest.address", Kind: "host:port", Default: DefaultRESTAddress,
		Doc: "Address on which REST, /healthz and /readyz listen, in the form of " +
			"grpc.address.",
		parse: into(func(c *Config) *string { return &c.REST.Address }, parseListener),
	},
	{
		Name: "rest.proxyProtocol", Kind: "bool", Default: "false", Bool: true,
		Doc:   "As grpc.proxyProtocol, for the REST port.",
		parse: into(func(c *Config) *bool { return &c.REST.Proxied }, parseBool),
	},
	{
		Name: "rest.hosts", Reload: true, Kind: "list of names",
		Doc: "Names by which REST clients reach the gateway, without a port, one on each " +
			"line or separated by commas. A listener in plain text, or that only this machine " +
			"can reach, refuses requests with another Host (421), since a page of another site " +
			"could point its own name at the gateway. It always answers for localhost, IP " +
			"addresses and the name in rest.address. *.example.com is all names below " +
			"example.com; * alone allows any name.",
		parse: into(func(c *Config) *[]string { return &c.REST.Hosts }, parseHosts),
	},
	{
		Name: "rest.cors.origins", Reload: true, Kind: "list of origins",
		Doc: "Origins of the pages that a browser lets call the REST port (CORS), such as " +
			"https://app.example, one on each line or separated by commas. One * in an origin " +
			"matches any text; * alone allows every page of every site. Without origins only " +
			"pages of the port's own origin can call it.",
		parse: into(func(c *Config) *[]string { return &c.REST.CORS.Origins }, parseOrigins),
	},
	{
		Name: "rest.cors.headers", Reload: true, Kind: "list of names",
		Doc: "Headers that these pages may send, beside those of the API " +
			"(docs/browsers.md lists them).",
		parse: into(func(c *Config) *[]string { return &c.REST.CORS.Headers }, parseList),
	},
	{
		Name: "rest.cors.credentials", Reload: true, Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether a browser may send its client certificate, and cookies for a proxy in " +
			"front, with the calls of these pages. It needs origins without * alone. API keys " +
			"and tokens in headers do not need it.",
		parse: into(func(c *Config) *bool { return &c.REST.CORS.Credentials }, parseBool),
	},
	{
		Name: "dataApi.sources", Kind: "list of names",
		Doc: "Names that dataSource may have in the requests of the Atlas Data API " +
			"(docs/data-api.md), such as mongodb-atlas, one on each line or separated by commas. " +
			"All of them are the gateway's one deployment. Without a name the REST port does not " +
			"serve that API.",
		parse: into(func(c *Config) *[]string { return &c.DataAPI.Sources }, parseList),
	},
	{
		Name: "dataApi.insertStatus", Kind: "200 or 201", Default: "201",
		Doc: "Status of the inserts of the Atlas Data API. Its service answered 201; some " +
			"clients were written for 200.",
		parse: into(func(c *Config) *int { return &c.DataAPI.InsertStatus }, parseInsertStatus),
	},
	{
		Name: "console.enabled", Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether the REST port serves the console at /console/ (docs/console.md). Its pages " +
			"are the same for everyone; what they show needs the credentials and the permissions " +
			"of the API.",
		parse: into(func(c *Config) *bool { return &c.Console.Enabled }, parseBool),
	},
	{
		Name: "console.oidc.clientId", Kind: "name",
		Doc: "Id of the console at auth.jwt.issuer, where people can then sign in to it. " +
			"Register it there as a public client with PKCE, and with the console's address as " +
			"the redirect URI: https://HOST/console/.",
		parse: into(func(c *Config) *string { return &c.Console.OIDC.Client }, parseText),
	},
	{
		Name: "console.oidc.scope", Kind: "scopes", Default: "openid",
		Doc: "Scopes that the console asks for, with spaces between them. The access token must " +
			"have the audience auth.jwt.audience; if that is the client id, the id token counts.",
		parse: into(func(c *Config) *string { return &c.Console.OIDC.Scope }, parseText),
	},
	{
		Name: "tls.certificateFile", Kind: "path",
		Doc: "PEM file with the certificate chain of the gRPC and REST listeners. Without " +
			"it they serve plain text. The gateway reads the three TLS files every five " +
			"seconds and applies a change to new connections after it has read it twice; on " +
			"SIGHUP it applies it at once. If it cannot use the files, it logs an error and " +
			"keeps the old ones.",
		parse: into(func(c *Config) *string { return &c.TLS.CertificateFile }, parseText),
	},
	{
		Name: "tls.keyFile", Kind: "path",
		Doc:   "PEM file with the private key of that certificate.",
		parse: into(func(c *Config) *string { return &c.TLS.KeyFile }, parseText),
	},
	{
		Name: "tls.clientAuthorityFile", Kind: "path",
		Doc: "PEM file with the authorities that issue client certificates. With it clients can " +
			"present a certificate; see auth.certificateName.",
		parse: into(func(c *Config) *string { return &c.TLS.ClientAuthorityFile }, parseText),
	},
	{
		Name: "tls.clientCertificates", Kind: "optional or required", Default: "optional",
		Doc: "Whether a connection without a client certificate is refused (required), health " +
			"checks included. Used with tls.clientAuthorityFile.",
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
		Doc: "Whether gRPC and REST may listen without authentication (options auth.…) on an " +
			"address that other machines can reach. Every client then has the rights of the " +
			"MongoDB user.",
		parse: into(func(c *Config) *bool { return &c.AllowUnauthenticated }, parseBool),
	},
	{
		Name: apiKeys, Reload: true, Kind: "lines", Secret: true,
		Doc: "Valid API keys, one on each line, as `mooring key api new` prints them; lines " +
			"that start with # are comments. The lines have hashes, not the keys. The gateway " +
			"reads a file of keys every five seconds and applies a change after it has read it " +
			"twice; on SIGHUP it applies it at once. If it cannot use the file, it logs an " +
			"error and keeps the old keys.",
		parse: into(func(c *Config) **caller.KeyTable { return &c.Auth.APIKeys }, parseAPIKeys),
		shown: func(c *Config) string { return strings.Join(c.Auth.APIKeys.Describe(), "\n") },
	},
	{
		Name: "auth.jwt.issuer", Kind: "URL",
		Doc: "Issuer of valid JSON Web Tokens, such as https://issuer.example: exactly the " +
			"iss of its tokens. The gateway finds the issuer's keys by OpenID Connect " +
			"discovery, when it needs them. It needs auth.jwt.audience.",
		parse: into(func(c *Config) *string { return &c.Auth.JWT.Issuer }, parseIssuer),
	},
	{
		Name: "auth.jwt.audience", Kind: "name",
		Doc:   "Name of this gateway at the issuer, which the aud of a valid token contains.",
		parse: into(func(c *Config) *string { return &c.Auth.JWT.Audience }, parseText),
	},
	{
		Name: "auth.jwt.algorithms", Kind: "list", Default: "RS256,ES256",
		Doc: "Signature algorithms of tokens that count: " +
			strings.Join(caller.Algorithms(), ", ") + ".",
		parse: into(func(c *Config) *[]string { return &c.Auth.JWT.Algorithms }, parseAlgorithms),
	},
	{
		Name: "auth.jwt.skew", Kind: "duration", Default: "1m",
		Doc: "How far the clocks of issuer and gateway may differ: a token is valid for " +
			"that much longer than its exp, and earlier than its nbf.",
		parse: into(func(c *Config) *time.Duration { return &c.Auth.JWT.Skew },
			durationWithin(0, 10*time.Minute)),
	},
	{
		Name: "auth.jwt.claim", Kind: "name", Default: "sub",
		Doc: "Claim of a token that has the principal's name. Choose one that the issuer does " +
			"not let users change.",
		parse: into(func(c *Config) *string { return &c.Auth.JWT.Claim }, parseText),
	},
	{
		Name: operators, Kind: "list",
		Doc: "Principals that may call DeploymentService, such as key:ann, jwt:ann or " +
			"cert:ann, if clients are authenticated and there is no policy.file. It shows the " +
			"servers and all clients' cursors, and can close these. With policy.file the " +
			"policy decides.",
		parse: into(func(c *Config) *[]string { return &c.Auth.Operators }, parsePrincipals),
	},
	{
		Name: policyFile, Kind: "path",
		Doc: "File with rules in the Cedar language: who may do what with which documents " +
			"and fields (docs/policy.md). Without it every client may do everything but call " +
			"DeploymentService (auth.operators). The gateway does not start with a file that " +
			"it cannot use. It reads the file every five seconds, and at once on SIGHUP; if it " +
			"cannot use a new one, it logs an error and keeps the old rules.",
		parse: into(func(c *Config) *string { return &c.Policy.File }, parseText),
	},
	{
		Name: "policy.javaScript", Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether $where, $function and $accumulator are allowed under a policy, to clients " +
			"without limits on documents and fields. Without policy.file they always are.",
		parse: into(func(c *Config) *bool { return &c.Policy.JavaScript }, parseBool),
	},
	{
		Name: "auth.certificateName", Kind: "name", Default: string(caller.Subject),
		Doc: "What names the principal in a client certificate (tls.clientAuthorityFile): " +
			"subject (the whole distinguished name), the only commonName, or the only dns, uri " +
			"or email of the alternative names. With none, certificates are not credentials.",
		parse: into(func(c *Config) *caller.CertificateName { return &c.Auth.CertificateName },
			parseCertificateName),
	},
	{
		Name: "connections.max", Reload: true, Kind: "number or none", Default: "4096",
		Doc: "How many client connections the gateway holds, of gRPC and REST together. It " +
			"closes one more as soon as it has accepted it.",
		parse: into(func(c *Config) *int { return &c.Connections.Max }, parseLimit),
	},
	{
		Name: "connections.maxPerAddress", Reload: true, Kind: "number or none", Default: "2048",
		Doc: "How many of them may come from one address (of IPv6, from one /64 network), " +
			"which all clients behind a NAT share. It does not apply to Unix domain sockets, " +
			"nor to connections of the proxies in proxies.addresses, which carry many clients; " +
			"a connection whose client the PROXY protocol names counts for that client.",
		parse: into(func(c *Config) *int { return &c.Connections.MaxPerAddress }, parseLimit),
	},
	{
		Name: "connections.maxAge", Kind: "duration or none", Default: "10m",
		Doc: "Age from which a client of gRPC or REST is told to use another connection, so that " +
			"clients spread over new replicas. Calls in flight on the old one finish.",
		parse: into(func(c *Config) *time.Duration { return &c.Connections.MaxAge },
			orNone(durationWithin(time.Second, 24*time.Hour))),
	},
	{
		Name: "connections.maxStreams", Kind: "number", Default: "250",
		Doc: "How many calls one HTTP/2 connection of a client may have in flight. Clients " +
			"queue further calls.",
		parse: into(func(c *Config) *int { return &c.Connections.MaxStreams }, parseCount),
	},
	{
		Name: "proxies.addresses", Kind: "list of networks",
		Doc: "Proxies and load balancers in front of the gateway that may name a client's " +
			"address: IP addresses or networks such as 10.0.0.0/8, one on each line or " +
			"separated by commas. proxies.header, grpc.proxyProtocol and rest.proxyProtocol " +
			"say how they name it. List no network with clients in it: each could claim " +
			"another address.",
		parse: into(func(c *Config) *[]netip.Prefix { return &c.Proxies.Networks }, parseNetworks),
	},
	{
		Name: "proxies.header", Kind: "Forwarded, X-Forwarded-For or none", Default: none,
		Doc: "Request header, and metadata key in gRPC, to which the proxies in " +
			"proxies.addresses append the address that called them: Forwarded (RFC 7239) or " +
			"X-Forwarded-For. The gateway reads it from the right: the client is the first " +
			"address that is not in proxies.addresses. It ignores the header from other " +
			"addresses, and the other header always.",
		parse: into(func(c *Config) *clientaddr.Header { return &c.Proxies.Header },
			parseProxyHeader),
	},
	{
		Name: "debug.address", Kind: "host:port", Default: none,
		Doc: "Address on which /debug/pprof/ and /debug/vars listen, to examine the gateway " +
			"itself. They show memory contents and can slow the gateway down, so it must be a " +
			"loopback address or unix:/path.",
		parse: into(func(c *Config) *string { return &c.DebugAddress }, parseLocal),
	},
	{
		Name: "admin.address", Kind: "host:port", Default: none,
		Doc: "Address on which /metrics listens, for Prometheus. It is plain HTTP without " +
			"credentials: let only your monitoring reach it. Only this machine may make calls " +
			"that change something. It may be unix:/path.",
		parse: into(func(c *Config) *string { return &c.AdminAddress }, parseListener),
	},
	{
		Name: "metrics.nativeHistograms", Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether duration histograms also have the native form, for a Prometheus that " +
			"asks for it: finer buckets in fewer series.",
		parse: into(func(c *Config) *bool { return &c.Metrics.NativeHistograms }, parseBool),
	},
	{
		Name: "addressesFile", Kind: "path",
		Doc: "File to which the gateway writes the addresses of its listeners as JSON when they " +
			"are bound: {\"grpc\":\"127.0.0.1:27080\",\"rest\":\"127.0.0.1:8080\"}, and debug, " +
			"admin and replica if they are on. Use it in scripts with port 0.",
		parse: into(func(c *Config) *string { return &c.AddressesFile }, parseText),
	},
	{
		Name: handleKeys, Reload: true, Kind: "keys", Secret: true,
		Doc: "Keys that seal cursor tokens, one on each line, as `mooring key new` prints " +
			"them; lines that start with # are comments. The first key seals, and all of them " +
			"open; docs/operations.md says how to change them. Give all replicas the same " +
			"list. Without a key the gateway makes one, which is lost when it stops. It reads " +
			"a key file every five seconds and applies a change after it has read it twice; on " +
			"SIGHUP it applies it at once. If it cannot use the file, it logs an error and " +
			"keeps the old keys.",
		parse: into(func(c *Config) *[]seal.Key { return &c.HandleKeys }, parseKeys),
	},
	{
		Name: idempotencyKey, Reload: true, Kind: "key", Secret: true,
		Doc: "Key from which the gateway derives the sessions of calls with an " +
			"`Idempotency-Key`, as `mooring key new` prints it. Give all replicas the same. It " +
			"is required with handle.keys; otherwise the gateway makes one, which is lost when " +
			"it stops: a call repeated after that is done again. It does not change with the " +
			"handle keys. To change it, write a second line, TIME KEY, with a future time, " +
			"such as 2026-01-31T12:00:00Z: from then on the first key is not used, and calls " +
			"with a key are refused for 31 minutes, until the second is in force " +
			"(docs/operations.md). The file is reloaded like that of handle.keys.",
		parse: into(func(c *Config) *idempotency.Schedule { return &c.Idempotency }, parseSchedule),
	},
	{
		Name: "replica.address", Kind: "host:port", Default: none,
		Doc: "Address on which this gateway listens for other replicas, with mutual TLS by " +
			"the handle keys, which it needs. With port 0 the kernel chooses a port; with none " +
			"this is the only replica, and no other one can continue its cursors. Clients do " +
			"not need this port.",
		parse: into(func(c *Config) *string { return &c.Replica.Address }, parseAddress),
	},
	{
		Name: "replica.advertise", Kind: "host or host:port",
		Doc: "Address at which the other replicas reach replica.address: this replica's own, " +
			"never that of a load balancer. Without a port it has the port of replica.address. " +
			"Without the option it is replica.address, which must then have a host. At most 61 " +
			"bytes with the port, because every token contains it.",
		parse: into(func(c *Config) *string { return &c.Replica.Advertise }, parseAdvertise),
	},
	{
		Name: "replica.peers", Kind: "list of host:port",
		Doc: "Where to look for the other replicas: addresses, one on each line or " +
			"separated by commas. A DNS name, such as that of a headless Service, means all " +
			"its addresses. Never use an address that several replicas share, such as a " +
			"ClusterIP. This replica itself may be in the list. Without the option a replica " +
			"finds only those that tokens name or that call it, and its cursors may have " +
			"nowhere to move when it stops.",
		parse: into(func(c *Config) *[]string { return &c.Replica.Peers }, parsePeers),
	},
	{
		Name: "cursors.idle", Kind: "duration", Default: "10m",
		Doc: "How long a cursor waits for the next page before it is closed; each page " +
			"restarts the time. A stream waits as long for its client to take the next " +
			"message. A gateway holds 100,000 cursors; one more closes the cursor that has " +
			"waited longest.",
		parse: into(func(c *Config) *time.Duration { return &c.Cursors.Idle },
			durationWithin(time.Second, 24*time.Hour)),
	},
	{
		Name: "transactions.idle", Kind: "duration", Default: "1m",
		Doc: "How long a transaction waits for its next call before it is aborted; each " +
			"call restarts the time. MongoDB aborts a transaction a minute after its first " +
			"operation, unless its transactionLifetimeLimitSeconds says otherwise.",
		parse: into(func(c *Config) *time.Duration { return &c.Transactions.Idle },
			durationWithin(time.Second, time.Hour)),
	},
	{
		Name: "cursors.unreadIdle", Kind: "duration", Default: "1m",
		Doc: "How long the cursor of a GET waits for its second page, since many clients " +
			"read only the first. After that cursors.idle applies, which also limits this time.",
		parse: into(func(c *Config) *time.Duration { return &c.Cursors.UnreadIdle },
			durationWithin(time.Second, 24*time.Hour)),
	},
	{
		Name: "cursors.pageMemory", Kind: "size", Default: "64MiB",
		Doc: "Memory for what cursors keep between two pages: the pages sent last, so that " +
			"a repeated call gets the same page, and the rest of a server's batch that was " +
			"larger than a page. When it is full, the gateway drops the oldest pages (a " +
			"repeated call then gets CursorTokenReused). Rests stay until they are read, and " +
			"while they fill it, no cursor is opened. It is at most half of memory.budget.",
		parse: into(func(c *Config) *int64 { return &c.Cursors.PageMemory }, sizeWithin(0, 1<<40)),
	},
	{
		Name: "cursors.maxPerPrincipal", Kind: "number or none", Default: "100",
		Doc: "How many cursors one principal may hold open in this gateway. One more closes " +
			"the least recently used cursor whose second page was not asked for. If there is " +
			"none, a call that may open one more gets RESOURCE_EXHAUSTED and is not run. Open " +
			"transactions count, too. Each address of unauthenticated clients is one " +
			"principal. All principals together hold at most 100000, of which one gets 80% if " +
			"it is alone, and less beside others, also with none.",
		parse: into(func(c *Config) *int { return &c.Cursors.MaxPerPrincipal }, parseLimit),
	},
	{
		Name: "cursors.maxPinned", Kind: "percent", Default: "80%",
		Doc: "Largest part of each connection pool (maxPoolSize) that open cursors and " +
			"transactions may hold behind a load balancer (loadBalanced=true); at least one " +
			"connection. A call that needs one more gets RESOURCE_EXHAUSTED.",
		parse: into(func(c *Config) *float64 { return &c.Cursors.MaxPinned }, parsePercent),
	},
	{
		Name: "pages.maxSize", Kind: "size", Default: "3MiB",
		Doc: "Largest page of documents. Messages of a stream are no larger, and have at " +
			"most 448 KiB. A larger document is sent alone. Most gRPC clients refuse messages " +
			"over 4 MiB unless you raise their limit.",
		parse: into(func(c *Config) *int64 { return &c.Pages.MaxSize }, sizeWithin(1<<10, 48<<20)),
	},
	{
		Name: "streams.memory", Kind: "size", Default: "32MiB",
		Doc: "Memory that the batches of all streams share: the more streams, the smaller their " +
			"batches, but never below 64 KiB.",
		parse: into(func(c *Config) *int64 { return &c.Streams.Memory }, sizeWithin(1<<20, 1<<40)),
	},
	{
		Name: "streams.max", Reload: true, Kind: "number, auto or none", Default: auto,
		Doc: "How many streams may be open in all, of which one principal gets 80% if it is " +
			"alone, and less beside others. One more gets UNAVAILABLE, or RESOURCE_EXHAUSTED if " +
			"its principal has more than all others together. An open stream takes about 40 KiB " +
			"beside what it is charged with: auto is one for each 128 KiB of memory.budget.",
		parse: into(func(c *Config) *int { return &c.Streams.Max }, parseAutoLimit),
	},
	{
		Name: "streams.maxPerPrincipal", Reload: true, Kind: "number or none", Default: "2000",
		Doc: "How many streams one principal may have open. One more gets " +
			"RESOURCE_EXHAUSTED. Each address of unauthenticated clients is one principal.",
		parse: into(func(c *Config) *int { return &c.Streams.MaxPerPrincipal }, parseLimit),
	},
	{
		Name: "changeStreams.maxPerPrincipal", Reload: true, Kind: "number or none",
		Default: none,
		Doc: "How many change streams one principal may have open. One more gets " +
			"RESOURCE_EXHAUSTED. Those that share no cursor are also bounded by the pool: of 20 " +
			"less than maxPoolSize, one principal gets 80% if it is alone, and less beside others.",
		parse: into(func(c *Config) *int { return &c.ChangeStreams.MaxPerPrincipal }, parseLimit),
	},
	{
		Name: "changeStreams.maxPerTicket", Reload: true, Kind: "number or none", Default: "5",
		Doc: "How many change streams of one ticket may be open. One more gets " +
			"RESOURCE_EXHAUSTED. A browser that reconnects may need one more until the gateway " +
			"notices that the previous connection is gone.",
		parse: into(func(c *Config) *int { return &c.ChangeStreams.MaxPerTicket }, parseLimit),
	},
	{
		Name: "memory.budget", Kind: "size or auto", Default: auto,
		Doc: "Memory that all requests together may hold: bodies and messages being read, " +
			"servers' answers, responses that clients have not taken, and what cursors and " +
			"streams keep. One principal gets 80% of it if it is alone, and less beside " +
			"others. What does not fit waits for requests.queueTime. The whole process takes " +
			"about a quarter more. auto is four fifths of GOMEMLIMIT, else of 90% of the " +
			"container's limit, else 512MiB. A request takes at least twice its size, so a " +
			"budget of less than twice requests.maxSize refuses the largest.",
		parse: into(func(c *Config) *int64 { return &c.MemoryBudget }, parseBudget),
	},
	{
		Name: "requests.maxItems", Kind: "number", Default: "100000",
		Doc: "How many items all lists of a request may have together, such as the documents of " +
			"an insertMany. An import has no limit.",
		parse: into(func(c *Config) *int { return &c.Requests.MaxItems }, parseCount),
	},
	{
		Name: "requests.maxSize", Kind: "size", Default: "64MiB",
		Doc:   "Largest request message or body.",
		parse: into(func(c *Config) *int64 { return &c.MaxRequestSize }, sizeWithin(1<<10, 1<<30)),
	},
	{
		Name: "responses.minCompressed", Kind: "size", Default: "2KiB",
		Doc: "Size from which a response, or a message of one, is compressed for a client " +
			"that accepts that: with gzip or zstd, both at their fastest level. Each response " +
			"being compressed counts as 1 MiB more of the budget. REST's streams are " +
			"compressed whatever the size of their items. Choose a larger size on a fast " +
			"network.",
		parse: into(func(c *Config) *int64 { return &c.MinCompressed }, sizeWithin(256, 1<<30)),
	},
	{
		Name: "requests.maxAbandoned", Kind: "percent", Default: "20%",
		Doc: "Largest part of the connections of a pool (maxPoolSize), on all servers " +
			"together, for operations that were sent and whose clients have disconnected; at " +
			"least one. Such an operation continues for at most 30 seconds, so that a write or " +
			"a page is not lost. Beyond that it ends when its client disconnects; a write " +
			"takes the place of a read, which ends. One principal gets 80% of them if it is " +
			"alone, and less beside others.",
		parse: into(func(c *Config) *float64 { return &c.MaxAbandoned }, parsePercent),
	},
	{
		Name: "requests.maxTimeout", Reload: true, Kind: "duration or none", Default: none,
		Doc: "Longest time that a request may take, whatever deadline its client sets. It does " +
			"not apply to streams.",
		parse: into(func(c *Config) *time.Duration { return &c.MaxRequestTimeout },
			orNone(durationWithin(time.Millisecond, 24*time.Hour))),
	},
	{
		Name: "requests.timeout", Reload: true, Kind: "duration", Default: "0s",
		Doc: "How long a request may take if the client sets no deadline (the gRPC " +
			"deadline, Request-Timeout, timeout); 0s is no limit but requests.maxTimeout. It " +
			"does not apply to streams, but to each batch of an Import. A client may set a " +
			"longer deadline.",
		parse: into(func(c *Config) *time.Duration { return &c.RequestTimeout },
			durationWithin(0, 24*time.Hour)),
	},
	{
		Name: "requests.maxInFlight", Reload: true, Kind: "number, auto or none", Default: auto,
		Doc: "How many requests may be in flight. A stream counts while a server works for " +
			"it, not while its client reads; a change stream does not count. One principal " +
			"gets 80% of it if it is alone, and less beside others. The rest queues, in turns " +
			"between principals. auto is maxPoolSize (100 by default), so that hanging " +
			"requests of one principal do not take all connections to a server: set more if " +
			"reads go to several servers.",
		parse: into(func(c *Config) *int { return &c.Requests.MaxInFlight }, parseAutoLimit),
	},
	{
		Name: "requests.maxInFlightPerPrincipal", Reload: true, Kind: "number or none",
		Default: none,
		Doc: "How many requests of one principal may be in flight, as for " +
			"requests.maxInFlight. Each address of unauthenticated clients is one principal.",
		parse: into(func(c *Config) *int { return &c.Requests.MaxInFlightPerPrincipal },
			parseLimit),
	},
	{
		Name: "requests.rate", Reload: true, Kind: "number or none", Default: none,
		Doc: "How many requests and streams may begin in a second. More are refused with " +
			"UNAVAILABLE.",
		parse: into(func(c *Config) *int { return &c.Requests.Rate }, parseLimit),
	},
	{
		Name: "requests.ratePerPrincipal", Reload: true, Kind: "number or none", Default: none,
		Doc: "How many requests and streams of one principal may begin in a second. More are " +
			"refused with RESOURCE_EXHAUSTED.",
		parse: into(func(c *Config) *int { return &c.Requests.RatePerPrincipal }, parseLimit),
	},
	{
		Name: "requests.queueTime", Reload: true, Kind: "duration", Default: "5s",
		Doc: "How long a request waits for its turn or for memory. Then it is refused with " +
			"RESOURCE_EXHAUSTED (429) if its principal has more than all others together, else " +
			"with UNAVAILABLE (503). 0s refuses at once. A request also waits this long for a " +
			"connection to a server (not with 0s), unless the connection string has " +
			"waitQueueTimeoutMS.",
		parse: into(func(c *Config) *time.Duration { return &c.Requests.QueueTime },
			durationWithin(0, time.Hour)),
	},
	{
		Name: "drain.linger", Kind: "duration", Default: "2s",
		Doc: "How long the gateway still serves calls after SIGTERM or SIGINT. Meanwhile it " +
			"is not ready and tells clients to use other connections, so that load balancers " +
			"notice that it stops.",
		parse: into(func(c *Config) *time.Duration { return &c.DrainLinger },
			durationWithin(0, time.Minute)),
	},
	{
		Name: "drain.timeout", Kind: "duration", Default: "20s",
		Doc: "How long requests and streams in flight may continue after drain.linger. The " +
			"gateway then ends the rest with UNAVAILABLE and closes their cursors on the " +
			"server. A second signal ends the gateway at once.",
		parse: into(func(c *Config) *time.Duration { return &c.DrainTimeout },
			durationWithin(0, time.Hour)),
	},
	{
		Name: "errors.serverTexts", Kind: "auto, show or hide", Default: string(TextsAuto),
		Doc: "Whether errors give clients the addresses of servers, and the server's own " +
			"words and documents (such as the value of a duplicate key). With hide a client " +
			"gets the code, its name and a sentence of the gateway. auto hides them if clients " +
			"are authenticated, except from operators: clients that the policy permits " +
			"GetTopology, or auth.operators. The gateway's log of requests always has the " +
			"addresses, and the server's words only where they say that it cannot be used.",
		parse: into(func(c *Config) *ServerTexts { return &c.ServerTexts }, parseServerTexts),
	},
	{
		Name: "audit.file", Kind: "path, log or none", Default: none,
		Doc: "File to which the gateway appends a JSON line for each write, each refusal " +
			"and each administrative call: the principal, the action, the namespace, the " +
			"outcome and the request's id, and no values. The file is reopened on SIGHUP, so " +
			"that it can be renamed. log writes the lines to the gateway's log, from level " +
			"info.",
		parse: into(func(c *Config) *string { return &c.Audit }, parseOrNone),
	},
	{
		Name: "tracing.sampling", Reload: true, Kind: "percentage or auto", Default: auto,
		Doc: "Share of the traces that begin at the gateway to record, such as 1% or 0.05%; " +
			"a client's traceparent decides about its own. auto leaves it to " +
			"OTEL_TRACES_SAMPLER. Traces are on if OTEL_EXPORTER_OTLP_ENDPOINT is set " +
			"(docs/tracing.md).",
		parse: into(func(c *Config) **float64 { return &c.Tracing.Sampling }, parseShare),
	},
	{
		Name: "tracing.comment", Reload: true, Kind: "bool", Default: "false", Bool: true,
		Doc: "Whether commands of recorded traces have the comment {traceparent: …}, for " +
			"MongoDB's logs and profiler (4.4 or newer). Requests keep a comment of their own.",
		parse: into(func(c *Config) *bool { return &c.Tracing.Comment }, parseBool),
	},
	{
		Name: "log.level", Reload: true, Kind: "level", Default: "info",
		Doc: "Lowest level that is logged: debug (one line for each request), info (changes of " +
			"the deployment, summaries of refusals), warn or error. PUT /log/level on the admin " +
			"port changes it while the gateway runs.",
		parse: into(func(c *Config) *logLevel { return &c.Log.Level }, parseLevel),
	},
	{
		Name: "log.driver", Kind: "list", Default: none,
		Doc: "Components of the driver whose messages are logged at debug, in the words of " +
			"MongoDB's specifications: command, connection, serverSelection, topology. Commands " +
			"are logged without their content.",
		parse: into(func(c *Config) *[]string { return &c.Log.Driver }, parseComponents),
	},
	{
		Name: "log.slowRequest", Kind: "duration or none", Default: "1s",
		Doc: "Duration from which a unary call is logged as slow, with its namespace and " +
			"the shape of its filter, without values.",
		parse: into(func(c *Config) *time.Duration { return &c.Log.SlowRequest },
			orNone(durationWithin(time.Millisecond, time.Hour))),
	},
	{
		Name: "log.format", Kind: "text or json", Default: "text",
		Doc:   "Format of log lines, which go to standard error.",
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
