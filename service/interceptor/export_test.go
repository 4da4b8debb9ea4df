package interceptor

// Order returns the names of the steps, in their order.
func (x *Chain) Order() (names []string) {
	for _, s := range x.steps {
		names = append(names, s.name)
	}
	return names
}
