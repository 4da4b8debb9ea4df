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

// Limits of a server that does not state its own (it always does; these are what all supported
// versions have).
const (
	defaultMaxBSONObjectSize = 16 * 1024 * 1024
	defaultMaxMessageSize    = 48_000_000
	defaultMaxWriteBatchSize = 100_000
)

// NewServer returns the server that a reply to hello describes, legacy or not. It never fails: a
// reply with ok: 0, or one that does not state what the server is, gives an unknown server whose
// LastError says why. A malformed field that is not needed for that counts as absent. rtt becomes
// the average round-trip time. The caller sets LastUpdateTime. The result keeps no view of the
// reply, except inside LastError.
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
			return *Unknown(addr,
				&mongoerr.MalformedReplyError{Address: addr, Field: key, Problem: problem})
		}
	}
	h.Kind = h.kind()
	return h.Server
}

// helloReply collects a Server and the fields that only determine its kind.
type helloReply struct {
	Server
	writablePrimary, legacyPrimary *bool
	secondary, arbiterOnly, hidden bool
	isReplicaSet                   bool
	message                        string
}

// kind returns the server's kind by the specification's table "type", in its order of precedence.
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
	if problem, needed := h.setNeeded(key, v); needed {
		return problem
	}
	h.setOptional(key, v)
	return ""
}

// setNeeded takes one of the fields that determine what the server is, who else is in its replica
// set, and whether the driver speaks its protocol. A malformed one makes the server unknown, since
// a wrong guess could cost more than this server: members that a list seems to leave out are
// removed, and an incompatible server fails every operation.
func (h *helloReply) setNeeded(key string, v bson.Value) (problem string, needed bool) {
	switch key {
	case "isWritablePrimary":
		problem = setBoolPointer(&h.writablePrimary, v)
	case "ismaster":
		problem = setBoolPointer(&h.legacyPrimary, v)
	case "secondary":
		problem = setBool(&h.secondary, v)
	case "arbiterOnly":
		problem = setBool(&h.arbiterOnly, v)
	case "hidden":
		problem = setBool(&h.hidden, v)
	case "isreplicaset":
		problem = setBool(&h.isReplicaSet, v)
	case "msg":
		problem = setString(&h.message, v)
	case "setName":
		problem = setString(&h.SetName, v)
	case "hosts":
		problem = setAddresses(&h.Hosts, v)
	case "passives":
		problem = setAddresses(&h.Passives, v)
	case "arbiters":
		problem = setAddresses(&h.Arbiters, v)
	case "minWireVersion":
		problem = setInt32(&h.MinWireVersion, v, 0)
	case "maxWireVersion":
		problem = setInt32(&h.MaxWireVersion, v, 0)
	default:
		return "", false
	}
	return problem, true
}

// setOptional takes one of the other fields, and ignores a malformed value: the specification says
// of each of them what it means if it is absent.
func (h *helloReply) setOptional(key string, v bson.Value) {
	switch key {
	case "helloOk":
		_ = setBool(&h.HelloOK, v)
	case "iscryptd":
		_ = setBool(&h.IsCryptd, v)
	case "me":
		_ = setAddress(&h.Me, v)
	case "primary":
		_ = setAddress(&h.Primary, v)
	case "setVersion":
		setIntPointer(&h.SetVersion, v)
	case "electionId":
		h.ElectionID, _ = v.ObjectID()
	case "serviceId":
		h.ServiceID, _ = v.ObjectID()
	case "connectionId":
		h.ConnectionID, _ = v.AsInt64()
	case "maxBsonObjectSize":
		_ = setInt32(&h.MaxBSONObjectSize, v, 1)
	case "maxMessageSizeBytes":
		_ = setInt32(&h.MaxMessageSize, v, 1)
	case "maxWriteBatchSize":
		_ = setInt32(&h.MaxWriteBatchSize, v, 1)
	case "logicalSessionTimeoutMinutes":
		setIntPointer(&h.LogicalSessionTimeoutMinutes, v)
	case "topologyVersion":
		if doc, ok := v.Document(); ok {
			h.TopologyVersion = parseTopologyVersion(doc)
		}
	case "lastWrite":
		h.setLastWrite(v)
	case "tags":
		h.setTags(v)
	}
}

// setBool accepts a boolean, and also a number: servers other than MongoDB's own send 1 for true.
func setBool(to *bool, v bson.Value) string {
	switch v.Type {
	case bson.TypeBool, bson.TypeInt32, bson.TypeInt64, bson.TypeDouble:
		*to = v.Truthy()
		return ""
	}
	return notA("a boolean", v)
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
		return notA("a string", v)
	}
	*to = cloneString(s)
	return ""
}

// cloneString copies the string, so that it does not keep the reply's buffer alive.
func cloneString(s string) string { return string([]byte(s)) }

func setAddress(to *address.Address, v bson.Value) string {
	s, ok := v.Str()
	if !ok {
		return "must be a string, not " + v.Type.String()
	}
	addr, err := address.Parse(cloneString(s))
	if err != nil {
		return err.Error()
	}
	*to = addr
	return ""
}

// setAddresses leaves out malformed addresses, which no client could connect to. A list of nothing
// else is an error.
func setAddresses(to *[]address.Address, v bson.Value) string {
	array, ok := v.Array()
	if !ok {
		return notA("an array", v)
	}
	var all []address.Address
	problem := ""
	for i, v := range array.All() {
		var addr address.Address
		if p := setAddress(&addr, v); p != "" {
			problem = fmt.Sprintf("item %d: %s", i, p)
			continue
		}
		all = append(all, addr)
	}
	if len(all) == 0 {
		return problem
	}
	slices.Sort(all)
	*to = slices.Compact(all)
	return ""
}

func setIntPointer(to **int64, v bson.Value) {
	if n, ok := v.AsInt64(); ok {
		*to = &n
	}
}

func setInt32(to *int32, v bson.Value, least int64) string {
	n, ok := v.AsInt64()
	if !ok || n < least || n > math.MaxInt32 {
		return notA("a 32-bit integer in range", v)
	}
	*to = int32(n)
	return ""
}

// parseTopologyVersion returns nil if doc is not a topologyVersion.
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

func (h *helloReply) setLastWrite(v bson.Value) {
	doc, ok := v.Document()
	if !ok {
		return
	}
	date, _ := doc.Lookup("lastWriteDate")
	h.LastWriteDate, _ = date.Time()
	if opTime, _ := doc.Lookup("opTime"); !opTime.IsZero() && !opTime.IsNull() {
		h.OpTime = opTime.Clone()
	}
}

// setTags leaves out tags that are not strings, since no tag set could ask for them.
func (h *helloReply) setTags(v bson.Value) {
	doc, ok := v.Document()
	if !ok {
		return
	}
	var tags []Tag
	for name, v := range doc.All() {
		if value, ok := v.Str(); ok {
			tags = append(tags, Tag{Name: cloneString(name), Value: cloneString(value)})
		}
	}
	h.Tags = NewTagSet(tags...)
}

func notA(what string, v bson.Value) string {
	return fmt.Sprintf("is not %s: it has the type %v", what, v.Type)
}
