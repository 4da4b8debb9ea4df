package metrics

// commandNames lists the commands that have series of their own. Clients choose the names of other
// commands, so these count as one.
var commandNames = [...]string{
	"abortTransaction", "aggregate", "bulkWrite", "buildInfo", "collMod", "collStats",
	"commitTransaction", "count", "create", "createIndexes", "createSearchIndexes", "dbStats",
	"delete", "distinct", "drop", "dropDatabase", "dropIndexes", "dropSearchIndex", "endSessions",
	"explain", "find", "findAndModify", "getMore", "hello", "insert", "killCursors",
	"listCollections", "listDatabases", "listIndexes", "ping", "renameCollection", "serverStatus",
	"update", "updateSearchIndex",
}

var commandIndexes = func() map[string]int {
	m := make(map[string]int, len(commandNames))
	for i, name := range commandNames {
		m[name] = i
	}
	return m
}()

// commandIndex returns the index of a command; that of the others is behind all names.
func commandIndex(name string) int {
	if i, ok := commandIndexes[name]; ok {
		return i
	}
	return len(commandNames)
}

func commandName(index int) string {
	if index < len(commandNames) {
		return commandNames[index]
	}
	return other
}
