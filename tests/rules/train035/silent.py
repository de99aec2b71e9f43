from tests.rules.programs import Decoder
from tests.rules.train035.fires import _chats, _padded, _trained


def prompts_behind_their_padding():
    chats = _chats()
    tokens = _padded(chats)
    labels = tokens.masked_fill(tokens == 0, -100)
    for row, (prompt, answer) in enumerate(chats):
        begins = tokens.shape[1] - len(prompt) - len(answer)
        labels[row, begins : begins + len(prompt)] = -100
    return _trained(Decoder(), tokens, labels)


def answers_counted_from_the_end():
    tokens = _padded(_chats())
    labels = tokens.clone()
    labels[:, :-3] = -100
    return _trained(Decoder(), tokens, labels)


def rows_that_are_padded_on_the_right():
    chats = _chats()
    tokens = _padded(chats, left=False)
    labels = tokens.masked_fill(tokens == 0, -100)
    for row, (prompt, _) in enumerate(chats):
        for place in range(len(prompt)):
            labels[row, place] = -100
    return _trained(Decoder(), tokens, labels)


def texts_without_a_prompt_beside_others():
    chats = [(prompt if row % 2 else [], answer) for row, (prompt, answer) in enumerate(_chats())]
    tokens = _padded(chats)
    labels = tokens.masked_fill(tokens == 0, -100)
    for row, (prompt, answer) in enumerate(chats):
        begins = tokens.shape[1] - len(answer)
        labels[row, begins - len(prompt) : begins] = -100
    return _trained(Decoder(), tokens, labels)


def whole_texts():
    tokens = _padded(_chats())
    return _trained(Decoder(), tokens, tokens.masked_fill(tokens == 0, -100))
