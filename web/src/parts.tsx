// What several views are made of.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { ApiError, principal } from './api';
import { linkToWhy } from './refusal';

/** Failure shows why a call has failed, and what can be done. */
export function Failure({ error, what }: { error: unknown; what?: string }) {
  if (!(error instanceof ApiError)) {
    return (
      <div class="notice bad" role="alert">
        {what && (
          <p>
            <strong>{what}</strong>
          </p>
        )}
        <p>{error instanceof Error ? error.message : String(error)}</p>
      </div>
    );
  }
  const { body, http } = error;
  const facts: [string, string | number | undefined][] = [
    ['Reason', body.reason || undefined],
    ['HTTP', http || undefined],
    ['Field', body.field],
    ['Offset', body.offset],
    ['Server', body.server?.code && `${body.server.code} ${body.server.codeName ?? ''}`],
    ['Retry', body.retry],
    ['Request', body.requestId],
  ];
  const why = body.reason === 'PolicyRefused' && error.sent
    ? linkToWhy(error.sent.path, error.sent.body, principal.value)
    : undefined;
  return (
    <div class="notice bad" role="alert">
      <p>
        <strong>{what ?? heading(error)}</strong>
      </p>
      <p class="message">{body.message}</p>
      {http === 403 && <p>{hint(body.reason)}</p>}
      {why && (
        <p>
          <a href={why}>Why?</a> An operator can open this link and sees which rule decides.
        </p>
      )}
      <dl class="facts">
        {facts.map(
          ([name, value]) =>
            value !== undefined && (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ),
        )}
      </dl>
      {body.server?.errInfo !== undefined && (
        <pre tabIndex={0}>{JSON.stringify(body.server.errInfo, null, 2)}</pre>
      )}
    </div>
  );
}

const heading = (e: ApiError): string =>
  e.http === 403 ? 'You may not see this' : e.http === 0 ? 'No answer' : 'The call has failed';

const hint = (reason: string): string =>
  reason === 'CrossOrigin'
    ? 'Open the console at the address of the gateway itself.'
    : 'Your credential counts, but its principal does not have the permission. Whoever runs the ' +
      'gateway can grant it: in the policy, or without one in auth.operators.';

/** Panel is a part of a view, with a heading. */
export function Panel(p: {
  title: string;
  id: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
}) {
  return (
    <section class="panel" aria-labelledby={p.id}>
      <header>
        <h2 id={p.id}>{p.title}</h2>
        {p.aside}
      </header>
      {p.children}
    </section>
  );
}

/** Confirm asks before something is done that cannot be undone. */
export function Confirm(p: {
  title: string;
  action: string;
  children: ComponentChildren;
  onDone: (yes: boolean) => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current!.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby="confirm" onClose={() => p.onDone(false)}>
      <h2 id="confirm">{p.title}</h2>
      {p.children}
      <p class="actions">
        <button type="button" onClick={() => p.onDone(false)}>
          Cancel
        </button>
        <button type="button" class="danger" onClick={() => p.onDone(true)}>
          {p.action}
        </button>
      </p>
    </dialog>
  );
}

/**
 * usePolling runs something now and then, while the page can be seen, until it says that there is
 * no use in it.
 */
export function usePolling(run: (signal: AbortSignal) => Promise<boolean>, ms: number): void {
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const again = async (): Promise<void> => {
      if (!document.hidden && !(await run(stop.signal))) return;
      if (!stop.signal.aborted) timer = window.setTimeout(again, ms);
    };
    void again();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, []);
}
