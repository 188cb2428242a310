// What the three agent loops of docs/compare.md take for a model.

/** A message of a conversation. Those of a model may ask for commands; those of a command answer one, by its id. */
export interface Message {
  role: "user" | "assistant" | "tool";
  content: string;
  commands?: { id: string; line: string }[];
  id?: string;
}

/** Answers a conversation. */
export type Model = (messages: readonly Message[]) => Promise<Message>;
