package check

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/mooringdb/mooring/core/address"
)

// Print writes the report for people, in one piece. It does not write Error.
func (r *Report) Print(w io.Writer) error {
	var text bytes.Buffer
	r.print(&text)
	_, err := w.Write(text.Bytes())
	return err
}

func (r *Report) print(w io.Writer) {
	top := printer{w, "", 19}
	top.line("connection string", r.ConnectionString)
	r.printHosts(top)
	if r.Credential != nil {
		top.line("user", r.Credential.String())
	}
	var options []string
	for _, o := range r.Options {
		options = append(options, o.String())
	}
	top.list("options", options)
	top.list("warnings", r.Warnings)
	top.list("clients", r.Clients)
	for i := range r.Servers {
		fmt.Fprintf(w, "\n%s\n", oneLine(string(r.Servers[i].Address)))
		r.Servers[i].print(printer{w, "  ", 17})
	}
	if r.Deployment != nil {
		fmt.Fprintln(w)
		r.Deployment.print(w)
	}
}

// printer writes lines of two columns.
type printer struct {
	w      io.Writer
	indent string
	width  int // of the first column
}

func (p printer) line(what, text string) {
	fmt.Fprintf(p.w, "%s%-*s%s\n", p.indent, p.width, what, text)
}

// list writes a list, unless it is empty.
func (p printer) list(what string, texts []string) {
	for _, text := range texts {
		p.line(what, text)
		what = ""
	}
}

func (r *Report) printHosts(p printer) {
	hosts := texts(r.Hosts)
	switch {
	case r.SRV != "" && len(hosts) == 0:
		hosts = []string{"the SRV records name no hosts: " + r.SRV}
	case r.SRV != "":
		hosts[0] += " (SRV records of " + r.SRV + ")"
	}
	p.list("hosts", hosts)
}

func (c *Credential) String() string {
	text := "***, without a password"
	if c.HasPassword {
		text = "***, with a password"
	}
	if c.Database != "" {
		text += ", authSource " + c.Database
	}
	if c.Mechanism == "" {
		return text + ", mechanism to be negotiated"
	}
	return text + ", mechanism " + c.Mechanism
}

func (o Option) String() string {
	text := o.Name + "=" + oneLine(o.Value)
	if o.FromDNS {
		text += " (TXT record)"
	}
	return text
}

func (s *Server) print(p printer) {
	if s.Discovered {
		p.line("found", "through other hosts, not in the connection string")
	}
	if s.Error != "" {
		p.line("failed", s.Error)
		return
	}
	s.Hello.print(p)
	p.line("round trip", fmt.Sprintf("%v ms, connected in %v ms", s.RoundTripMS, s.ConnectMS))
	if s.TLS == nil {
		p.line("tls", "none")
	} else {
		s.TLS.print(p)
	}
	p.line("compression", s.Compression.String())
	if s.Login != nil {
		s.Login.print(p)
	}
}

func (h *Hello) print(p printer) {
	kind := h.Kind
	if h.SetName != "" {
		kind += " of the set " + h.SetName
	}
	if h.Me != "" {
		kind += " as " + string(h.Me)
	}
	p.line("kind", kind)
	if h.Tags != "" {
		p.line("tags", h.Tags)
	}
	versions := fmt.Sprintf("%d to %d", h.MinWireVersion, h.MaxWireVersion)
	if release, ok := releases[h.MaxWireVersion]; ok {
		versions += " (as MongoDB " + release + ")"
	}
	p.line("wire versions", versions)
	p.line("limits", fmt.Sprintf("documents %d bytes, messages %d bytes, %d writes in a batch",
		h.MaxBSONObjectSize, h.MaxMessageSizeBytes, h.MaxWriteBatchSize))
	p.line("sessions", sessions(h.LogicalSessionTimeoutMinutes))
}

// releases maps a wire version to its releases.
var releases = map[int32]string{
	6: "3.6", 7: "4.0", 8: "4.2", 9: "4.4", 13: "5.0", 17: "6.0", 21: "7.0", 25: "8.0", 27: "8.2",
}

func (t *TLS) print(p printer) {
	p.line("tls", t.Version+", "+t.Cipher)
	subject := t.Subject
	if subject == "" {
		subject = "no subject"
	}
	if len(t.Names) > 0 {
		subject += " for " + strings.Join(t.Names, ", ")
	}
	p.line("certificate", subject)
	p.line("", "issued by "+t.Issuer)
	p.line("", "expires "+stamp(t.NotAfter))
	if t.Skipped != "" {
		p.line("", "NOT VERIFIED: "+t.Skipped)
	}
	p.line("revocation", t.OCSP)
}

func (c *Compression) String() string {
	switch {
	case c.Compressor != "":
		return c.Compressor
	case len(c.Offered) > 0:
		return "none, the server supports none of " + strings.Join(c.Offered, ", ")
	}
	return "none, the option compressors is not set"
}

func (d *Deployment) print(w io.Writer) {
	kind := d.Kind
	if d.SetName != "" {
		kind += ", set " + d.SetName
	}
	printer{w, "", 19}.line("deployment", kind)
	p := printer{w, "  ", 17}
	if d.Problem != "" {
		p.line("problem", d.Problem)
	}
	p.line("writes", orNobody(d.Writable))
	p.line("reads", orNobody(d.Readable)+" (readPreference "+d.ReadPreference+")")
	if len(d.TooFar) > 0 {
		p.line("", "too far away for it: "+strings.Join(texts(d.TooFar), ", "))
	}
	p.line("sessions", sessions(d.LogicalSessionTimeoutMinutes))
	for _, l := range d.LeftOut {
		p.line("left out", oneLine(string(l.Address))+": "+l.Reason)
	}
}

func sessions(minutes *int64) string {
	if minutes == nil {
		return "none"
	}
	return fmt.Sprintf("expire after %d minutes without use", *minutes)
}

func orNobody(hosts []address.Address) string {
	if len(hosts) == 0 {
		return "no server"
	}
	return strings.Join(texts(hosts), ", ")
}

func texts(hosts []address.Address) []string {
	all := make([]string, 0, len(hosts))
	for _, h := range hosts {
		all = append(all, oneLine(string(h)))
	}
	return all
}
