package interceptor

// Order returns the names of the steps of a client's call and of a forwarded one, in their order.
func (x *Chain) Order() (steps, onward []string) {
	for _, s := range x.steps {
		steps = append(steps, s.name)
	}
	for _, s := range x.onward {
		onward = append(onward, s.name)
	}
	return steps, onward
}
