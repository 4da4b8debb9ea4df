package rest

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/spelling"
)

// maxHint is the length of the longest segment that an error repeats.
const maxHint = 64

// notFound returns the error of a path that ends at, or leaves, the tree at this node. segment is
// the part that leads nowhere, and verb what follows the last colon.
func (n *node) notFound(segment, verb string, isVerb bool) error {
	const nothing = "there is nothing at this path"
	switch {
	case isVerb && verb == "":
		return refuse(rpcerr.RouteNotFound, nothing+`: the name of a call follows ":"`)
	case isVerb:
		for _, name := range slices.Sorted(maps.Keys(n.literals)) {
			if _, ok := n.literals[name].ends[verb]; ok {
				return refuse(rpcerr.RouteNotFound, "there is no call "+quoted(":"+verb)+
					" here: did you mean "+quoted("/"+name+":"+verb)+"?")
			}
		}
		if name := spelling.Nearest(verb, maps.Keys(n.ends)); name != "" {
			return refuse(rpcerr.RouteNotFound, "there is no call "+quoted(":"+verb)+
				" here: did you mean "+quoted(":"+name)+"?")
		}
		if n.parent != nil && n.parent.ends[verb] != nil {
			return refuse(rpcerr.RouteNotFound, "there is no call "+quoted(":"+verb)+
				" here: did you mean "+quoted("/"+n.parent.segment+":"+verb)+", without "+
				quoted("/"+n.segment)+"?")
		}
		return refuse(rpcerr.RouteNotFound, "there is no call "+quoted(":"+verb)+` here (a ":" `+
			"in a name is %3A in a path)"+n.known())
	case n.parent == nil && (segment == "app" || segment == "action"):
		return refuse(rpcerr.RouteNotFound, nothing+": the Atlas Data API is served only "+
			"if the option dataApi.sources is set")
	case segment != "":
		if name := spelling.Nearest(segment, maps.Keys(n.literals)); name != "" {
			return refuse(rpcerr.RouteNotFound, "there is no "+quoted(segment)+
				" at this position of the path: did you mean "+quoted(name)+"?")
		}
	}
	return refuse(rpcerr.RouteNotFound, nothing+n.known())
}

// known lists how a path can go on at this node.
func (n *node) known() string {
	var names []string
	for name := range n.literals {
		names = append(names, "/"+name)
	}
	for verb := range n.ends {
		if verb != "" {
			names = append(names, ":"+verb)
		}
	}
	if n.variable != nil {
		names = append(names, "/{"+n.variable.name+"}")
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return ". The path can continue with " + strings.Join(names, ", ")
}

// takers lists how a path goes on from this node to the routes of a method, by one verb or by one
// segment.
func (n *node) takers(method string) []string {
	var names []string
	list := func(prefix string, at *node) {
		for verb, e := range at.ends {
			if _, ok := e[method]; !ok {
				continue
			}
			if verb != "" {
				verb = ":" + verb
			}
			names = append(names, prefix+verb)
		}
	}
	list("", n)
	for name, child := range n.literals {
		list("/"+name, child)
	}
	if n.variable != nil {
		list("/{"+n.variable.name+"}", n.variable)
	}
	slices.Sort(names)
	return names
}

// meant returns what to add to the error of a field that is not there: the name that is most like
// it, or all of them. The fields of the path are not in the body, which root describes.
func (p *plan) meant(name string, root *plan) string {
	if name == "allowGap" && p.byName["cursor"] != nil {
		return ": " + rpcerr.AllowGapGone
	}
	names := make([]string, 0, len(p.fields))
	for _, f := range p.fields {
		if !f.inPath || p != root {
			names = append(names, f.name)
		}
	}
	return meant(name, names)
}

// meant returns what to add to the error of an unknown name.
func meant(name string, known []string) string {
	if like := spelling.Nearest(name, slices.Values(known)); like != "" {
		return ": did you mean " + like + "?"
	}
	slices.Sort(known)
	return ": known are " + strings.Join(known, ", ")
}

func quoted(text string) string {
	if len(text) > maxHint {
		text = strings.ToValidUTF8(text[:maxHint], "") + "…"
	}
	return strconv.Quote(text)
}
