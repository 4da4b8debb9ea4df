package rest

// Template is the method and the path of a route.
type Template struct{ Method, Path string }

// Templates returns the routes of an API.
func Templates(a *API) []Template {
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
	walk(a.routes)
	return found
}

// Match returns the template of the route that a request has, and the variables of its path.
func Match(a *API, method, path string) (template string, values map[string]string) {
	at, verb, found, err := a.routes.find(path, nil)
	if err != nil || at.ends[verb][method] == nil {
		return "", nil
	}
	values = map[string]string{}
	for _, v := range found {
		values[v.name] = v.value
	}
	return at.ends[verb][method].path, values
}
