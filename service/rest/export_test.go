package rest

import "net/http"

// Unread returns how many streams of a handler wait for their clients.
func Unread(h http.Handler) int {
	u := &h.(*Handler).unread //nolint:forcetypeassert // of tests
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.since)
}

// Template is the method and the path of a route.
type Template struct{ Method, Path string }

// Templates returns the routes of a handler.
func Templates(h http.Handler) []Template {
	var found []Template
	var walk func(n *node)
	walk = func(n *node) {
		for _, e := range n.ends {
			for _, r := range e {
				found = append(found, Template{r.method, r.path})
			}
		}
		for _, next := range n.literals {
			walk(next)
		}
		if n.variable != nil {
			walk(n.variable)
		}
	}
	walk(h.(*Handler).rest.routes) //nolint:forcetypeassert // of tests
	return found
}

// Match returns the template of the route that a request has, and the variables of its path.
func Match(h http.Handler, method, path string) (template string, values map[string]string) {
	//nolint:forcetypeassert // of tests
	at, verb, found, err := h.(*Handler).rest.routes.find(path, nil)
	if err != nil || at.ends[verb][method] == nil {
		return "", nil
	}
	values = map[string]string{}
	for _, v := range found {
		values[v.name] = v.value
	}
	return at.ends[verb][method].path, values
}
