package rpcerr

import (
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// documentValidationFailure is the server's code for a document that a validator refuses.
const documentValidationFailure = 121

// The violations of an error take at most violationShare times the bytes of its errInfo, and
// maxViolationBytes: a call can have many errors, and all that is charged for them is the reply.
// Those beyond it are only in errInfo.
const (
	violationShare    = 4
	maxViolationBytes = 4096
	// violationBytes is what a violation takes beside its texts.
	violationBytes = 96
)

// violations returns the rules that a document breaks, as the errInfo of a validator's refusal
// tells them, in its order. It returns nil for any other errInfo.
//
// A rule's details are a tree. A node of it says where it is within the node above by the name of a
// property or the index of an item; one of a query operator names its field in specifiedAs.
func violations(code int32, info *mooringv1.Document) []*mooringv1.Violation {
	if code != documentValidationFailure {
		return nil
	}
	details, _ := bson.Raw(info.GetBson()).Lookup("details")
	r := refusal{room: min(maxViolationBytes, violationShare*len(info.GetBson()))}
	r.walk(details, place{})
	return r.found
}

// refusal holds the violations that were found, and the room for more of them in bytes; below 0:
// they are full.
type refusal struct {
	found []*mooringv1.Violation
	room  int
	said  int // those found, also without room
}

// place says where a walk is: the pointer, and the description that the validator has for it.
type place struct{ pointer, description string }

// at returns the place of a field or an item within p.
func (p place) at(name string) place {
	return place{pointer: p.pointer + "/" + escapePointer.Replace(name)}
}

// escapePointer escapes a part of a JSON pointer (RFC 6901, section 3).
var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

// branches lists the fields in which a node has those below it: documents, or arrays of them.
var branches = map[string]bool{
	"details": true, "schemaRulesNotSatisfied": true, "propertiesNotSatisfied": true,
	"schemasNotSatisfied": true, "clausesNotSatisfied": true, "clausesSatisfied": true,
	"failingDependencies": true,
}

// walk takes what a node, or each node of an array, says.
func (r *refusal) walk(v bson.Value, at place) {
	if nodes, ok := v.Array(); ok {
		for it := bson.Raw(nodes).Iter(); r.room >= 0 && it.Next(); {
			r.walk(it.Value(), at)
		}
		return
	}
	node, ok := v.Document()
	if !ok || r.room < 0 {
		return
	}
	n := readNode(node)
	if at = n.place(at); len(at.pointer) > maxViolationBytes {
		return // nothing below it has room
	}
	before := r.said
	for it := node.Iter(); it.Next(); {
		switch {
		case branches[it.Key()]:
			r.walk(it.Value(), at)
		case it.Key() == "missingProperties":
			r.each(it.Value(), at, n.rule, n.missing())
		case it.Key() == "additionalProperties":
			r.each(it.Value(), at, n.rule, "the field is not allowed")
		}
	}
	if r.said > before || r.room < 0 {
		return
	}
	if message := n.message(); message != "" { // nothing below it said more
		r.add(at, n.rule, message)
	}
}

// each adds a violation for each field that an array names.
func (r *refusal) each(names bson.Value, at place, rule, message string) {
	array, _ := names.Array()
	for it := bson.Raw(array).Iter(); r.room >= 0 && it.Next(); {
		if name, ok := it.Value().Str(); ok {
			r.add(at.at(name), rule, message)
		}
	}
}

func (r *refusal) add(at place, rule, message string) {
	r.said++
	if at.description != "" {
		message = at.description
	}
	v := &mooringv1.Violation{
		Pointer: valid(at.pointer), Rule: cut(rule, maxPartBytes),
		Message: cut(message, maxPartBytes),
	}
	if r.room -= violationBytes + len(v.Pointer) + len(v.Rule) + len(v.Message); r.room >= 0 {
		r.found = append(r.found, v)
	}
}

// node holds what a node says of itself.
type node struct {
	rule, reason, description string
	condition                 string // the field that requires others
	property                  string // where it is within the node above
	item                      int64
	hasProperty, hasItem      bool
	specified                 bson.Raw
}

func readNode(d bson.Raw) (n node) {
	for it := d.Iter(); it.Next(); {
		switch v := it.Value(); it.Key() {
		case "operatorName":
			n.rule, _ = v.Str()
		case "reason":
			n.reason, _ = v.Str()
		case "description":
			n.description, _ = v.Str()
		case "propertyName", "failingProperty":
			n.property, n.hasProperty = v.Str()
		case "itemIndex":
			n.item, n.hasItem = v.AsInt64()
		case "conditionalProperty": // in what breaks the rule dependencies
			n.rule = "dependencies"
			n.condition, _ = v.Str()
		case "specifiedAs":
			n.specified, _ = v.Document()
		}
	}
	return n
}

// place returns where the node is, if the one above it is at p.
func (n node) place(p place) place {
	switch {
	case n.hasProperty:
		p = p.at(n.property)
	case n.hasItem:
		p = p.at(strconv.FormatInt(n.item, 10))
	case strings.HasPrefix(n.rule, "$"):
		// A query operator: its path begins at the document.
		if path, ok := n.path(); ok {
			p = place{}
			for name := range strings.SplitSeq(path, ".") {
				p = p.at(name)
			}
		}
	}
	if n.description != "" {
		p.description = n.description
	}
	return p
}

// path returns the path to which a query operator applies: {"a.b": {$gt: 5}}.
func (n node) path() (string, bool) {
	it := n.specified.Iter()
	ok := it.Next() && !strings.HasPrefix(it.Key(), "$")
	return it.Key(), ok
}

// missing returns what to say of a field that the document lacks.
func (n node) missing() string {
	if n.condition != "" {
		return "the field is missing, which " + strconv.Quote(n.condition) + " requires"
	}
	return "the field is missing"
}

// message returns the reason with the rule as the validator has it.
func (n node) message() string {
	rule, err := extjson.Append(nil, n.specified, extjson.Relaxed)
	switch {
	case err != nil || len(n.specified) == 0:
		return n.reason
	case n.reason == "":
		return string(rule)
	}
	return n.reason + ": " + string(rule)
}
