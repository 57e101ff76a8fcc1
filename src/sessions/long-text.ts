/** JSON text that may be too long for one string: its first piece, and the further ones as they are read; joined they are one value. */
export interface LongText {
  first: string;
  /** Absent where `first` is all. */
  rest?: AsyncIterable<string>;
}
