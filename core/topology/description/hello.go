package description

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// Limits of a server that does not state its own (it always does; these are what all supported versions have).
const (
	defaultMaxBSONObjectSize = 16 * 1024 * 1024
	defaultMaxMessageSize    = 48_000_000
	defaultMaxWriteBatchSize = 100_000
)

// NewServer reads the reply to a hello, legacy or not. It never fails: a reply with ok: 0, or one that makes no sense,
// gives an unknown server whose LastError says why. rtt becomes the average round-trip time. The caller, who has a
// clock, sets LastUpdateTime. The result keeps no view of the reply, except inside LastError.
func NewServer(addr address.Address, hello bson.Raw, rtt time.Duration) Server {
	if err := mongoerr.FromReply(addr, hello); err != nil {
		return *Unknown(addr, err)
	}
	h := helloReply{Server: Server{
		Address: addr, AverageRTT: rtt,
		MaxBSONObjectSize: defaultMaxBSONObjectSize,
		MaxMessageSize:    defaultMaxMessageSize,
		MaxWriteBatchSize: defaultMaxWriteBatchSize,
	}}
	for key, v := range hello.All() {
		if v.IsNull() {
			continue
		}
		if problem := h.set(key, v); problem != "" {
			return *Unknown(addr, &mongoerr.MalformedReplyError{Address: addr, Field: key, Problem: problem})
		}
	}
	h.Kind = h.kind()
	return h.Server
}

// helloReply is a Server in the making, and the fields that only tell its kind.
type helloReply struct {
	Server
	writablePrimary, legacyPrimary *bool
	secondary, arbiterOnly, hidden bool
	isReplicaSet                   bool
	message                        string
}

// kind is the specification's table "type", in its order of precedence.
func (h *helloReply) kind() ServerKind {
	switch {
	case h.message == "isdbgrid":
		return ServerMongos
	case h.isReplicaSet:
		return ServerRSGhost
	case h.SetName == "":
		return ServerStandalone
	case h.hidden:
		return ServerRSOther
	case h.isPrimary():
		return ServerRSPrimary
	case h.secondary:
		return ServerRSSecondary
	case h.arbiterOnly:
		return ServerRSArbiter
	}
	return ServerRSOther
}

func (h *helloReply) isPrimary() bool {
	if h.writablePrimary != nil {
		return *h.writablePrimary
	}
	return h.legacyPrimary != nil && *h.legacyPrimary
}

// set takes one field. It returns what is wrong with the value, or "".
func (h *helloReply) set(key string, v bson.Value) (problem string) {
	switch key {
	case "isWritablePrimary":
		return setBoolPointer(&h.writablePrimary, v)
	case "ismaster":
		return setBoolPointer(&h.legacyPrimary, v)
	case "secondary":
		return setBool(&h.secondary, v)
	case "arbiterOnly":
		return setBool(&h.arbiterOnly, v)
	case "hidden":
		return setBool(&h.hidden, v)
	case "isreplicaset":
		return setBool(&h.isReplicaSet, v)
	case "helloOk":
		return setBool(&h.HelloOK, v)
	case "iscryptd":
		return setBool(&h.IsCryptd, v)
	case "msg":
		return setString(&h.message, v)
	case "setName":
		return setString(&h.SetName, v)
	case "me":
		return setAddress(&h.Me, v)
	case "primary":
		return setAddress(&h.Primary, v)
	case "hosts":
		return setAddresses(&h.Hosts, v)
	case "passives":
		return setAddresses(&h.Passives, v)
	case "arbiters":
		return setAddresses(&h.Arbiters, v)
	case "setVersion":
		return setIntPointer(&h.SetVersion, v)
	case "electionId":
		return setObjectID(&h.ElectionID, v)
	case "serviceId":
		return setObjectID(&h.ServiceID, v)
	case "connectionId":
		h.ConnectionID, _ = v.AsInt64()
	case "minWireVersion":
		return setInt32(&h.MinWireVersion, v, 0)
	case "maxWireVersion":
		return setInt32(&h.MaxWireVersion, v, 0)
	case "maxBsonObjectSize":
		return setInt32(&h.MaxBSONObjectSize, v, 1)
	case "maxMessageSizeBytes":
		return setInt32(&h.MaxMessageSize, v, 1)
	case "maxWriteBatchSize":
		return setInt32(&h.MaxWriteBatchSize, v, 1)
	case "logicalSessionTimeoutMinutes":
		return setIntPointer(&h.LogicalSessionTimeoutMinutes, v)
	case "topologyVersion":
		return setTopologyVersion(&h.TopologyVersion, v)
	case "lastWrite":
		return setLastWrite(&h.LastWriteDate, v)
	case "tags":
		return setTags(&h.Tags, v)
	}
	return ""
}

// setBool takes a number, too: other servers than MongoDB's own send 1 for true.
func setBool(to *bool, v bson.Value) string {
	switch v.Type {
	case bson.TypeBool, bson.TypeInt32, bson.TypeInt64, bson.TypeDouble:
		*to = v.Truthy()
		return ""
	}
	return notA("boolean", v)
}

func setBoolPointer(to **bool, v bson.Value) string {
	var b bool
	problem := setBool(&b, v)
	if problem == "" {
		*to = &b
	}
	return problem
}

func setString(to *string, v bson.Value) string {
	s, ok := v.Str()
	if !ok {
		return notA("string", v)
	}
	*to = cloneString(s)
	return ""
}

// cloneString lets go of the reply's buffer.
func cloneString(s string) string { return string([]byte(s)) }

func setAddress(to *address.Address, v bson.Value) string {
	s, ok := v.Str()
	if !ok {
		return notA("string", v)
	}
	addr, err := address.Parse(cloneString(s))
	if err != nil {
		return err.Error()
	}
	*to = addr
	return ""
}

func setAddresses(to *[]address.Address, v bson.Value) string {
	array, ok := v.Array()
	if !ok {
		return notA("array", v)
	}
	var all []address.Address
	for i, v := range array.All() {
		var addr address.Address
		if problem := setAddress(&addr, v); problem != "" {
			return fmt.Sprintf("has at %d: %s", i, problem)
		}
		all = append(all, addr)
	}
	slices.Sort(all)
	*to = slices.Compact(all)
	return ""
}

func setIntPointer(to **int64, v bson.Value) string {
	n, ok := v.AsInt64()
	if !ok {
		return notA("integer", v)
	}
	*to = &n
	return ""
}

func setInt32(to *int32, v bson.Value, least int64) string {
	n, ok := v.AsInt64()
	if !ok || n < least || n > math.MaxInt32 {
		return notA("32-bit integer in range", v)
	}
	*to = int32(n)
	return ""
}

func setObjectID(to *bson.ObjectID, v bson.Value) string {
	id, ok := v.ObjectID()
	if !ok {
		return notA("ObjectId", v)
	}
	*to = id
	return ""
}

func setTopologyVersion(to **TopologyVersion, v bson.Value) string {
	doc, ok := v.Document()
	if !ok {
		return notA("document", v)
	}
	if *to = parseTopologyVersion(doc); *to == nil {
		return "has no valid processId and counter"
	}
	return ""
}

// parseTopologyVersion is nil where doc is none.
func parseTopologyVersion(doc bson.Raw) *TopologyVersion {
	id, _ := doc.Lookup("processId")
	processID, ok := id.ObjectID()
	if !ok {
		return nil
	}
	n, _ := doc.Lookup("counter")
	counter, ok := n.AsInt64()
	if !ok {
		return nil
	}
	return &TopologyVersion{ProcessID: processID, Counter: counter}
}

func setLastWrite(to *time.Time, v bson.Value) string {
	doc, ok := v.Document()
	if !ok {
		return notA("document", v)
	}
	date, ok := doc.Lookup("lastWriteDate")
	if !ok || date.IsNull() {
		return ""
	}
	ms, ok := date.DateTime()
	if !ok {
		return "lastWriteDate " + notA("date", date)
	}
	*to = time.UnixMilli(ms)
	return ""
}

func setTags(to *TagSet, v bson.Value) string {
	doc, ok := v.Document()
	if !ok {
		return notA("document", v)
	}
	var tags []Tag
	for name, v := range doc.All() {
		value, ok := v.Str()
		if !ok {
			return "has in " + name + ": " + notA("string", v)
		}
		tags = append(tags, Tag{Name: cloneString(name), Value: cloneString(value)})
	}
	*to = NewTagSet(tags...)
	return ""
}

func notA(what string, v bson.Value) string { return fmt.Sprintf("is no %s but a %v", what, v.Type) }
