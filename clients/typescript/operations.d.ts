import type { OperationId } from './index.js';

/** The method and the path of each operation, and whether it can be repeated if no answer comes. */
export declare const operations: Record<
  OperationId,
  [method: string, path: string, repeat: 'never' | 'read' | 'key' | 'token']
>;
