package clients_test

import "testing"

// TestExamples runs the examples that use the clients, on each server. The others are in lab/e2e.
func TestExamples(t *testing.T) { onEachServer(t, testExamples) }

func testExamples(t *testing.T, on server) {
	env := on.env("MOORING_GRPC=" + on.GRPC)
	t.Run("go", func(t *testing.T) {
		out := run(t, root(t), env, "go", "run", "./examples/go")
		want(t, out, "inserted 2500", "read 2500", "streamed 2500", "DuplicateKey, retry never")
	})
	t.Run("serverless", func(t *testing.T) {
		dir := installServerless(t)
		out := run(t, dir, env, "node", "main.js")
		want(t, out, `POST /orders: 201`, `400 {"error":"customer and total, please"}`,
			`200 [{"_id":`,
			`GET /elsewhere: 404`)
	})
}
