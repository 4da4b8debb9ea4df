package rest

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/service/rpcerr"
)

// maxHint is the length of the longest segment that an error repeats, or looks for a name for.
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
		if name := nearest(verb, maps.Keys(n.ends)); name != "" {
			return refuse(rpcerr.RouteNotFound, "there is no call "+quoted(":"+verb)+
				" here: did you mean "+quoted(":"+name)+"?")
		}
		return refuse(rpcerr.RouteNotFound, "there is no call "+quoted(":"+verb)+` here (a ":" `+
			"in a name is %3A in a path)"+n.known())
	case segment != "":
		if name := nearest(segment, maps.Keys(n.literals)); name != "" {
			return refuse(rpcerr.RouteNotFound, "there is no "+quoted(segment)+
				" at this place of a path: did you mean "+quoted(name)+"?")
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
	return ". Here a path can go on with " + strings.Join(names, ", ")
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
	if like := nearest(name, slices.Values(known)); like != "" {
		return ": did you mean " + like + "?"
	}
	slices.Sort(known)
	return ": here are " + strings.Join(known, ", ")
}

func quoted(text string) string {
	if len(text) > maxHint {
		text = strings.ToValidUTF8(text[:maxHint], "") + "…"
	}
	return strconv.Quote(text)
}

// nearest returns the name that is most like a text, "" if none is like it.
func nearest(text string, names iter.Seq[string]) string {
	if len(text) > maxHint {
		return ""
	}
	best, least := "", likeness{beside: (len(text) + 1) / 3, bytes: len(text)}
	for name := range names {
		if name == "" {
			continue
		}
		l := liken(strings.ToLower(text), strings.ToLower(name))
		if c := l.compare(least); c < 0 || c == 0 && (best == "" || name < best) {
			best, least = name, l
		}
	}
	return best
}

// likeness says how little a name is like a text.
type likeness struct {
	beside int // the distance, if neither is the beginning of the other
	bytes  int // the distance
}

func (l likeness) compare(other likeness) int {
	return cmp.Or(cmp.Compare(l.beside, other.beside), cmp.Compare(l.bytes, other.bytes))
}

func liken(text, name string) likeness {
	d := distance(text, name)
	l := likeness{beside: d, bytes: d}
	switch {
	case len(text) > 2 && strings.HasPrefix(name, text):
		l.beside = min(d, 1)
	case len(name) > 2 && strings.HasPrefix(text, name):
		l.beside = min(d, 2)
	}
	return l
}

// distance returns how many bytes must be added, removed or replaced to make one text the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
