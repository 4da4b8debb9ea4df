package rest

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// route describes one HTTP annotation of an RPC.
type route struct {
	rpc     string // "/mooring.v1.DocumentService/Find"
	method  string // of HTTP
	path    string // the annotation's template
	stream  bool
	offers  []media.Type // the default first
	request *plan
	reply   *plan
	params  map[string]queryParam // beside timeout
	own     []string              // parameters that are not fields of the request
	fields  bool                  // other parameters are conditions on fields
	bodies  []string              // the media types of the body
	items   items                 // of streams
	// requestType and replyType make empty messages.
	requestType, replyType protoreflect.MessageType
	build                  func(*call) (message, error) // makes the request, but for complete
	imports                bool                         // the body is a stream of requests
	inflates               bool                         // the body may be compressed
	resource               bool                         // the path is a document's
	bodyField              string                       // of a document's: the body is this field
}

// variable holds the value of a path's variable.
type variable struct{ name, value string }

// maxVariables is the number of variables that a path has at most.
const maxVariables = 3

// node represents a segment in the tree of all paths. Segments are looked up in a map, so that
// finding a route does not depend on the number of routes.
type node struct {
	literals map[string]*node
	variable *node
	parent   *node               // nil: the root
	segment  string              // that leads here, as templates write it
	name     string              // of the variable that leads here
	ends     map[string]endpoint // by verb, "" for none
}

// endpoint holds the routes of a path by HTTP method.
type endpoint map[string]*route

// newNode returns a node without a way on, to which the segment leads from its parent.
func newNode(parent *node, segment string) *node {
	return &node{
		parent: parent, segment: segment,
		literals: map[string]*node{}, ends: map[string]endpoint{},
	}
}

// add puts a route into the tree. Templates have the form /v1/literal/{variable}/literal:verb.
func (n *node) add(r *route) {
	template, verb, _ := strings.Cut(r.path, ":")
	for segment := range strings.SplitSeq(strings.TrimPrefix(template, "/"), "/") {
		n = n.child(segment)
	}
	if n.ends[verb] == nil {
		n.ends[verb] = endpoint{}
	}
	if n.ends[verb][r.method] != nil {
		panic("bug: rest: two routes for " + r.method + " " + r.path)
	}
	n.ends[verb][r.method] = r
}

func (n *node) child(segment string) *node {
	if name, isVariable := strings.CutPrefix(segment, "{"); isVariable {
		if n.variable == nil {
			n.variable = newNode(n, segment)
			n.variable.name = strings.TrimSuffix(name, "}")
		}
		return n.variable
	}
	if n.literals[segment] == nil {
		n.literals[segment] = newNode(n, segment)
	}
	return n.literals[segment]
}

// find returns where an escaped path leads, the verb at its end, and the values of its variables,
// appended to values. The node has an endpoint for the verb.
func (n *node) find(path string, values []variable) (
	at *node, verb string, found []variable, err error,
) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return nil, "", nil, n.notFound("", "", false)
	}
	for more := true; more; {
		var segment string
		var isVerb bool
		segment, rest, more = strings.Cut(rest, "/")
		if !more {
			segment, verb, isVerb = strings.Cut(segment, ":")
		}
		if next := n.literals[segment]; next != nil {
			n = next
		} else if n.variable != nil {
			n = n.variable
			value, err := unescape(segment)
			if err != nil {
				if segment == "" && !more {
					err = refuse(rpcerr.InvalidArgument, `the path ends with "/": leave it out`)
				}
				return nil, "", nil, err
			}
			values = append(values, variable{n.name, value})
		} else {
			return nil, "", nil, n.notFound(segment, "", false)
		}
		if more {
			continue
		}
		if n.ends[verb] != nil && isVerb == (verb != "") {
			return n, verb, values, nil
		}
		return nil, "", nil, n.notFound("", verb, isVerb)
	}
	return nil, "", nil, n.notFound("", "", false)
}

// unescape returns the name that a path segment stands for.
func unescape(segment string) (string, error) {
	name, err := url.PathUnescape(segment)
	if encoded, isBase64 := strings.CutPrefix(segment, "~"); isBase64 {
		var b []byte
		b, err = base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(encoded, "="))
		name = string(b)
	} else if name == "." || name == ".." {
		return "", refuse(rpcerr.InvalidArgument,
			"a segment of the path is a dot: write such a name as ~ and its base64url")
	}
	switch {
	case err != nil:
		return "", refuse(rpcerr.InvalidArgument,
			"the path has a segment that cannot be decoded: "+segment)
	case name == "":
		return "", refuse(rpcerr.InvalidArgument, "the path has an empty segment")
	case !utf8.ValidString(name):
		return "", refuse(rpcerr.InvalidArgument, "the path has a segment that is not UTF-8")
	}
	return name, nil
}

// route returns the endpoint's route for an HTTP method. HEAD is GET without the body.
func (e endpoint) route(method string) (*route, bool) {
	r, ok := e[method]
	if !ok && method == http.MethodHead {
		if r, ok = e[http.MethodGet]; ok && r.stream {
			return nil, false
		}
	}
	return r, ok
}

// allow returns the value of the Allow header.
func (e endpoint) allow() string {
	var methods []string
	for m, r := range e {
		methods = append(methods, m)
		if m == http.MethodGet && !r.stream {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}
