package policy

import "github.com/cedar-policy/cedar-go"

// Groups of actions. A rule can name a group: action in Action::"read".
const (
	read     = "read"     // reads documents
	write    = "write"    // changes documents
	describe = "describe" // lists databases, collections and indexes
	manage   = "manage"   // changes collections and indexes
	command  = "command"  // runs commands
	operate  = "operate"  // looks at the gateway and ends what clients have opened
	own      = "own"      // goes on with what the client has opened itself
	watch    = "watch"    // change streams
)

// kind says how an action is applied to the request of a call.
type kind uint8

const (
	documents   kind = iota // the request's database and collection, with all limits
	whole                   // the request's database and collection, and no limits are possible
	inDatabase              // as whole, on a database
	inAll                   // as whole, on the deployment
	commanding              // as inDatabase, and the command must be listed
	containing              // decided for each request in the message
	writeModels             // decided for each write in the message
	mine                    // on the deployment, of what the client has opened itself
)

// action describes what a call does.
type action struct {
	name, group string
	kind        kind
}

// actions has the action of each method of the API, by service and method.
var actions = map[string]action{
	"DocumentService/FindOne":                {"FindOne", read, documents},
	"DocumentService/Find":                   {"Find", read, documents},
	"DocumentService/StreamFind":             {"StreamFind", read, documents},
	"DocumentService/Aggregate":              {"Aggregate", read, documents},
	"DocumentService/StreamAggregate":        {"StreamAggregate", read, documents},
	"DocumentService/Distinct":               {"Distinct", read, documents},
	"DocumentService/CountDocuments":         {"CountDocuments", read, documents},
	"DocumentService/EstimatedDocumentCount": {"EstimatedDocumentCount", read, whole},
	"DocumentService/ExplainFind":            {"ExplainFind", read, whole},
	"DocumentService/ExplainAggregate":       {"ExplainAggregate", read, whole},
	"DocumentService/InsertOne":              {"InsertOne", write, documents},
	"DocumentService/InsertMany":             {"InsertMany", write, documents},
	"DocumentService/Import":                 {"Import", write, documents},
	"DocumentService/UpdateOne":              {"UpdateOne", write, documents},
	"DocumentService/UpdateMany":             {"UpdateMany", write, documents},
	"DocumentService/ReplaceOne":             {"ReplaceOne", write, documents},
	"DocumentService/DeleteOne":              {"DeleteOne", write, documents},
	"DocumentService/DeleteMany":             {"DeleteMany", write, documents},
	"DocumentService/FindOneAndUpdate":       {"FindOneAndUpdate", write, documents},
	"DocumentService/FindOneAndReplace":      {"FindOneAndReplace", write, documents},
	"DocumentService/FindOneAndDelete":       {"FindOneAndDelete", write, documents},
	"DocumentService/BulkWrite":              {"BulkWrite", write, writeModels},

	"DocumentResourceService/GetDocument":    {"GetDocument", read, documents},
	"DocumentResourceService/PutDocument":    {"PutDocument", write, documents},
	"DocumentResourceService/PatchDocument":  {"PatchDocument", write, documents},
	"DocumentResourceService/DeleteDocument": {"DeleteDocument", write, documents},

	"CatalogService/ListDatabases":       {"ListDatabases", describe, inAll},
	"CatalogService/ListCollections":     {"ListCollections", describe, inDatabase},
	"CatalogService/ListIndexes":         {"ListIndexes", describe, whole},
	"CatalogService/ListSearchIndexes":   {"ListSearchIndexes", describe, whole},
	"CatalogService/CreateCollection":    {"CreateCollection", manage, whole},
	"CatalogService/DropCollection":      {"DropCollection", manage, whole},
	"CatalogService/DropDatabase":        {"DropDatabase", manage, inDatabase},
	"CatalogService/RenameCollection":    {"RenameCollection", manage, whole},
	"CatalogService/CollMod":             {"CollMod", manage, whole},
	"CatalogService/CreateIndexes":       {"CreateIndexes", manage, whole},
	"CatalogService/DropIndexes":         {"DropIndexes", manage, whole},
	"CatalogService/CreateSearchIndexes": {"CreateSearchIndexes", manage, whole},
	"CatalogService/UpdateSearchIndex":   {"UpdateSearchIndex", manage, whole},
	"CatalogService/DropSearchIndex":     {"DropSearchIndex", manage, whole},

	"CommandService/RunCommand":             {"RunCommand", command, commanding},
	"CommandService/RunCursorCommand":       {"RunCursorCommand", command, commanding},
	"CommandService/StreamRunCursorCommand": {"StreamRunCursorCommand", command, commanding},

	"CursorService/NextPage":    {"NextPage", own, mine},
	"CursorService/Stream":      {"StreamCursor", own, mine},
	"CursorService/CloseCursor": {"CloseCursor", own, mine},
	"SessionService/Start":      {"StartSession", own, mine},
	"SessionService/End":        {"EndSession", own, mine},

	"TransactionService/Begin":  {"BeginTransaction", own, mine},
	"TransactionService/Commit": {"CommitTransaction", own, mine},
	"TransactionService/Abort":  {"AbortTransaction", own, mine},
	"TransactionService/Run":    {"RunTransaction", own, containing},

	"ChangeStreamService/Watch":        {"Watch", watch, whole},
	"ChangeStreamService/CreateTicket": {"CreateTicket", own, containing},

	"DeploymentService/GetTopology":   {"GetTopology", operate, inAll},
	"DeploymentService/WatchTopology": {"WatchTopology", operate, inAll},
	"DeploymentService/ListPools":     {"ListPools", operate, inAll},
	"DeploymentService/ListHandles":   {"ListHandles", operate, inAll},
	"DeploymentService/KillHandle":    {"KillHandle", operate, inAll},
}

// byName has each action by its name.
var byName = func() map[string]action {
	all := map[string]action{}
	for _, a := range actions {
		all[a.name] = a
	}
	return all
}()

// IsAction reports whether there is an action with the name.
func IsAction(name string) bool {
	_, ok := byName[name]
	return ok
}

// actionEntities holds the entities of all actions, each in its group.
var actionEntities = func() cedar.EntityMap {
	entities := cedar.EntityMap{}
	for _, a := range actions {
		group := cedar.NewEntityUID("Action", cedar.String(a.group))
		uid := cedar.NewEntityUID("Action", cedar.String(a.name))
		entities[group] = cedar.Entity{UID: group}
		entities[uid] = cedar.Entity{UID: uid, Parents: cedar.NewEntityUIDSet(group)}
	}
	return entities
}()
