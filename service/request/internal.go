package request

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
)

// internalKeys has the fields of commands that servers use among themselves. A client that sends
// one speaks as another server of the deployment: past the checks of routers and shards, and past
// the write blocking of users.
var internalKeys = map[string]struct{}{
	"allowSpeculativeMajorityRead": {}, "bypassEmptyTsReplacement": {},
	"clientOperationKey": {}, "databaseVersion": {}, "exchange": {}, "fromMigrate": {},
	"fromMongos": {}, "fromRouter": {}, "includeQueryStatsMetrics": {}, "internalClient": {},
	"isClusterQueryWithoutShardKeyCmd": {}, "isHybridSearch": {}, "isRankFusion": {},
	"isTimeseriesNamespace": {}, "maxTimeMSOpOnly": {}, "mayBypassWriteBlocking": {},
	"mergeByPBRT": {}, "needsMerge": {}, "needsSortedMerge": {}, "originalQuery": {},
	"querySettings": {}, "readOnce": {}, "requestGossipRoutingCache": {},
	"requestReshardingResumeToken": {}, "sampleId": {}, "shardVersion": {},
	"speculativeAuthenticate": {}, "stmtId": {}, "stmtIds": {}, "term": {},
	"use44SortKeys": {},
}

// IsInternal reports whether a top-level field of a command is not for clients: those of servers,
// and all that begin with a dollar sign, which belong to drivers and servers.
func IsInternal(key string) bool {
	_, ok := internalKeys[key]
	return ok || strings.HasPrefix(key, "$")
}

// extra returns the row of the fields that a request adds to its command.
func extra[O any](at func(*O) *client.Common) Row[O] {
	row := Document("options", func(o *O) *bson.Raw { return &at(o).Extra })
	read := row.read
	row.read = func(r *Reader, field string, v protoreflect.Value, o *O) {
		read(r, field, v, o)
		for key := range at(o).Extra.All() {
			if IsInternal(key) {
				r.Refuse(field, "%q cannot be used by clients: it is used between servers", key)
			}
		}
	}
	return row
}
