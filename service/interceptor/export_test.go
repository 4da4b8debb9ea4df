package interceptor

import "context"

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

// Trace has f called with the name of each step that a call comes to.
func (x *Chain) Trace(f func(name string)) {
	for _, steps := range [][]step{x.steps, x.onward} {
		for i, s := range steps {
			steps[i].run = func(ctx context.Context, c *pass) error {
				f(s.name)
				return s.run(ctx, c)
			}
		}
	}
}
