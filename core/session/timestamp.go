package session

import "github.com/mooringdb/mooring/core/bson"

// Timestamp holds a time of the cluster: seconds and an increment. Its zero value is none.
type Timestamp struct{ T, I uint32 }

// IsZero reports whether there is none.
func (t Timestamp) IsZero() bool { return t == Timestamp{} }

// After reports whether t is later than o.
func (t Timestamp) After(o Timestamp) bool { return t.T > o.T || t.T == o.T && t.I > o.I }

// Times returns the cluster time and the operation time of a reply, be it ok: 1 or ok: 0. The
// former is a view on the reply. What the reply lacks, or has with another type, is none.
func Times(reply bson.Raw) (cluster ClusterTime, operation Timestamp) {
	for key, v := range reply.All() {
		switch key {
		case clusterTimeKey:
			if doc, ok := v.Document(); ok {
				cluster = NewClusterTime(doc)
			}
		case "operationTime":
			operation.T, operation.I, _ = v.Timestamp()
		}
	}
	return cluster, operation
}

// AtClusterTime returns the time of the snapshot that the command of this reply has read: that of
// its cursor, or its own.
func AtClusterTime(reply bson.Raw) Timestamp {
	const key = "atClusterTime"
	v, ok := reply.Lookup("cursor", key)
	if !ok {
		v, _ = reply.Lookup(key)
	}
	t, i, _ := v.Timestamp()
	return Timestamp{t, i}
}
